//! How a leading machine's questions to the others pass through this one: each with its answer, those to different
//! machines beside each other.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::LabError;
use crate::channel::{Channel, Conversation, Voice};
use crate::remote::asked::first_answer;

/// What stands before a question, and after it the number of the machine: the server's is 0.
pub(super) const ASK: &str = "ask ";
/// What stands before the number of a machine whose process is to be started anew.
pub(super) const AGAIN: &str = "again ";
/// Answered when it was, after the number of the machine.
pub(super) const STARTED: &str = "started";
/// What stands before why it was not.
pub(super) const NOT_STARTED: &str = "not started: ";

/// What stands, after the number of the machine, before why it answers nothing any more.
pub(super) const LOST: &str = "lost: ";

/// How long an answer may take of a machine that says meanwhile that it is there: a client's part of a slice lasts for
/// ten minutes at most, and the leading machine has a limit of its own for what it waits for after that.
const WAITS: Duration = Duration::from_secs(720);

/// Asked of a machine.
enum Passed {
    Question(String),
    Again,
}

/// The way to one of the machines, in a thread of its own. It ends with the process there when it is ended.
pub(super) struct Relay<'scope> {
    questions: Sender<Passed>,
    passing: ScopedJoinHandle<'scope, Result<(), String>>,
}

impl<'scope> Relay<'scope> {
    /// Passes on what the leading machine asks the one of this number. `start` starts the process there anew.
    pub(super) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        (number, machine): (usize, Channel),
        answers: Voice,
        start: impl Fn() -> Result<Option<Channel>, LabError> + Send + 'scope,
    ) -> Relay<'scope> {
        let (questions, asked) = mpsc::channel();
        let passing = scope.spawn(move || pass_on(machine, number, &asked, &answers, start));
        Relay { questions, passing }
    }

    /// Ends the process there, and waits for it.
    ///
    /// # Errors
    /// Something could not be undone there, in words.
    pub(super) fn end(self) -> Result<(), String> {
        drop(self.questions);
        self.passing.join().expect("to pass on does not panic")
    }
}

/// Whether that was a question to one of the machines; it is on its way then.
pub(super) fn ask(relays: &[Relay<'_>], line: &str) -> bool {
    let question = line.strip_prefix(ASK).and_then(|rest| rest.split_once(' '));
    let question = question.map(|(number, words)| (number, Passed::Question(words.to_owned())));
    let again = || line.strip_prefix(AGAIN).map(|number| (number, Passed::Again));
    let Some((number, passed)) = question.or_else(again) else { return false };
    let relay = number.parse::<usize>().ok().and_then(|number| relays.get(number));
    // One whose thread has ended has nobody left to answer to.
    relay.is_some_and(|relay| relay.questions.send(passed).is_ok())
}

/// Passes questions on until there are no more, then ends the process there.
fn pass_on(
    machine: Channel,
    number: usize,
    questions: &Receiver<Passed>,
    answers: &Voice,
    start: impl Fn() -> Result<Option<Channel>, LabError>,
) -> Result<(), String> {
    let mut machine = Some(machine);
    // One that was lost undoes everything by itself, and has no last word.
    let mut is_lost = false;
    while let Ok(passed) = questions.recv() {
        let answer = match passed {
            Passed::Question(words) => {
                // The leading machine hears, too, that it is there.
                let is_there = &mut || {
                    answers.say(&format!("{number} "));
                };
                let answered = machine.as_ref().map_or(Err("it was not started".to_owned()), |machine| {
                    machine.say(&words).and_then(|()| first_answer(machine, WAITS, is_there))
                });
                if answered.is_err() {
                    is_lost = true;
                    // One that is silent would not end by itself, and another one is to be started.
                    machine.iter_mut().for_each(Channel::cut);
                }
                answered.map(|(said, _)| said).unwrap_or_else(|why| format!("{LOST}{why}"))
            }
            Passed::Again => {
                // It ends before another one begins.
                machine = None;
                match start() {
                    Ok(Some(started)) => {
                        (machine, is_lost) = (Some(started), false);
                        STARTED.to_owned()
                    }
                    Ok(None) => format!("{NOT_STARTED}the race is to end"),
                    Err(LabError::Machine { why, .. }) => format!("{NOT_STARTED}{why}"),
                    Err(error) => format!("{NOT_STARTED}{error}"),
                }
            }
        };
        if !answers.say(&format!("{number} {answer}")) {
            break;
        }
    }
    match machine {
        Some(mut machine) if !is_lost => machine.end(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::channel::ANSWER_MAX;

    fn shell(script: &str) -> Channel {
        Channel::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    /// The next line about a machine, past those by which it says that it is there.
    fn hear(client: &Channel) -> String {
        loop {
            let line = client.hear(ANSWER_MAX).unwrap();
            if !line.ends_with(' ') {
                return line;
            }
        }
    }

    fn answering(words: &str) -> Channel {
        shell(&format!("echo welcome; echo; while read line; do [ -z \"$line\" ] || echo '{words}'; done"))
    }

    #[test]
    fn what_a_login_shell_prints_is_no_answer() {
        let client = shell("cat");
        std::thread::scope(|scope| {
            let relay =
                Relay::begin(scope, (0, answering("\"Done\"")), client.voice(), || panic!("not again"));
            let relays = [relay];
            for question in ["one", "two"] {
                assert!(ask(&relays, &format!("ask 0 {question}")));
                assert_eq!(hear(&client), "0 \"Done\"");
            }
            assert!(!ask(&relays, "event one") && !ask(&relays, "ask 1 one"));
            let [relay] = relays;
            assert_eq!(relay.end(), Ok(()));
        });
    }

    #[test]
    fn a_machine_that_takes_long_does_not_keep_another_waiting_and_a_lost_one_is_started_anew() {
        let client = shell("cat");
        std::thread::scope(|scope| {
            let dies = shell("read line; kill -9 $$");
            let slow = shell("read line; read line; exit");
            let relays = [
                Relay::begin(scope, (0, slow), client.voice(), || Ok(None)),
                Relay::begin(scope, (1, dies), client.voice(), || Ok(Some(answering("\"Done\"")))),
            ];
            assert!(ask(&relays, "ask 0 first") && ask(&relays, "ask 1 second"));
            assert_eq!(hear(&client), "1 lost: the connection has ended");
            assert!(ask(&relays, "again 1"));
            assert_eq!(hear(&client), format!("1 {STARTED}"));
            assert!(ask(&relays, "ask 1 third"));
            assert_eq!(hear(&client), "1 \"Done\"");
            assert_eq!(client.next(Duration::ZERO), Ok(None), "the first has said nothing");
            let [slow, again] = relays;
            assert_eq!(again.end(), Ok(()));
            // It is heard of by the empty lines, and ends.
            assert_eq!(slow.end(), Ok(()));
        });
    }
}

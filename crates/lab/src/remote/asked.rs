//! A process on another machine, as this side asks it: a line for a line.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::order::Order;
use super::protocol::{Failed, RemoteRequest, Reply};
use crate::LabError;
use crate::channel::{ANSWER_MAX, Conversation, Lost, SILENCE_MAX, held, silent};

/// What is asked there. Each request is answered before the next, but several machines may be told before
/// the first is heard.
#[derive(Debug)]
pub(super) struct Asked {
    /// The machine as the user names it, for messages.
    name: String,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    channel: Box<dyn Conversation>,
    is_lost: bool,
}

impl Asked {
    /// By a conversation that has begun.
    pub(super) fn new(name: String, channel: Box<dyn Conversation>) -> Asked {
        Asked { name, line: Mutex::new(Line { channel, is_lost: false }) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is not to be heard of any more.
    pub(super) fn is_lost(&self) -> bool {
        held(&self.line).is_lost
    }

    /// Goes on with a process that was started anew.
    pub(super) fn resume(&self, channel: Box<dyn Conversation>) {
        *held(&self.line) = Line { channel, is_lost: false };
    }

    /// Ends the process there, which takes everything back; what it was asked last is not waited for.
    pub(super) fn lose(&self, why: &str) {
        *held(&self.line) = Line::lost(why);
    }

    /// Sends a request. That it could not be sent is heard in place of its answer.
    pub(super) fn tell(&self, request: &RemoteRequest) {
        let mut line = held(&self.line);
        let words = serde_json::to_string(request).map_err(|error| error.to_string());
        if let Err(why) = words.and_then(|words| line.channel.say(&words)) {
            *line = Line::lost(&why);
        }
    }

    /// The answer to the request that was sent, about a candidate.
    ///
    /// # Errors
    /// [`LabError::Broken`]: it is the candidate that failed there; [`LabError::Machine`]: there is no answer, or it
    /// could not be done.
    pub(super) fn told(&self, candidate: &str) -> Result<Reply, LabError> {
        let answer = next_answer(&*held(&self.line).channel, ANSWER_MAX, &mut || {}).and_then(|said| {
            serde_json::from_str(&said).map_err(|error| format!("it said {said:?}: {error}"))
        });
        self.read(candidate, answer)
    }

    fn read(&self, candidate: &str, answer: Result<Reply, String>) -> Result<Reply, LabError> {
        if let Err(why) = &answer {
            // What it answers later would be taken for the answer to another request. One that is silent would not
            // end by itself; there everything is taken back when the connection is gone.
            held(&self.line).channel.cut();
            self.lose(why);
        }
        answer.map_err(|why| self.failed(why)).and_then(|reply| match reply {
            Reply::Failed(Failed { broken: Some(what), .. }) => {
                let what = format!("on {}: {what}", self.name);
                Err(LabError::Broken { candidate: candidate.to_owned(), what })
            }
            Reply::Failed(Failed { why, remedy, fault, .. }) => {
                Err(LabError::Machine { machine: self.name.clone(), why, remedy, fault })
            }
            reply => Ok(reply),
        })
    }

    /// The first request to a process, which takes its machine for a race, and its answer, past what
    /// a shell prints before.
    ///
    /// # Errors
    /// Those of [`Asked::told`].
    pub(super) fn begun(&self, request: &RemoteRequest) -> Result<Reply, LabError> {
        self.tell(request);
        let answer = first_answer(&*held(&self.line).channel, ANSWER_MAX, &mut || {}).map(|(_, reply)| reply);
        self.read("", answer)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// Those of [`Asked::told`].
    pub(super) fn ask(&self, request: &RemoteRequest) -> Result<Reply, LabError> {
        self.tell(request);
        self.told(request.candidate())
    }

    /// The same where there is nothing to say of it.
    pub(super) fn done(&self, request: &RemoteRequest) -> Result<(), LabError> {
        self.tell(request);
        self.told_done(request.candidate())
    }

    /// Waits for the answer where there is nothing to say of it.
    ///
    /// # Errors
    /// Those of [`Asked::told`].
    pub(super) fn told_done(&self, candidate: &str) -> Result<(), LabError> {
        match self.told(candidate)? {
            Reply::Done => Ok(()),
            other => Err(self.strange(&other)),
        }
    }

    /// Waits until a half is taken down. Returns what of it was left, which another program has changed since, in
    /// words.
    ///
    /// # Errors
    /// Those of [`Asked::told`].
    pub(super) fn told_left(&self, candidate: &str) -> Result<Vec<String>, LabError> {
        match self.told(candidate)? {
            Reply::TakenDown(left) => {
                Ok(left.into_iter().map(|what| format!("on {}: {what}", self.name)).collect())
            }
            other => Err(self.strange(&other)),
        }
    }

    /// Why that machine cannot have the settings of its half, in words.
    ///
    /// # Errors
    /// Those of [`Asked::told`].
    pub(super) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        match self.ask(&RemoteRequest::Prove(Box::new(order.clone())))? {
            Reply::Unmet(reasons) => Ok(reasons),
            other => Err(self.strange(&other)),
        }
    }

    /// Ends the process there.
    ///
    /// # Errors
    /// Something could not be undone there.
    pub(super) fn end(&self) -> Result<(), LabError> {
        held(&self.line).channel.end().map_err(|why| self.failed(why))
    }

    pub(super) fn failed(&self, why: String) -> LabError {
        LabError::of_machine(self.name.clone(), why)
    }

    pub(super) fn strange(&self, reply: &Reply) -> LabError {
        self.failed(format!("its answer does not fit the request: {reply:?}"))
    }
}

impl Line {
    fn lost(why: &str) -> Line {
        Line { channel: Box::new(Lost(why.to_owned())), is_lost: true }
    }
}

/// The next answer within a time, past the empty lines by which the other side says meanwhile that it is there; each of
/// them calls `is_there`.
///
/// # Errors
/// There is none, in words, or the other side has said nothing for half a minute.
pub(crate) fn next_answer(
    channel: &dyn Conversation,
    limit: Duration,
    is_there: &mut dyn FnMut(),
) -> Result<String, String> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent(limit));
        }
        // One that says to the end that it is there has not answered for all of the time.
        let heard = channel.hear(left.min(SILENCE_MAX));
        let said = heard.map_err(|why| if Instant::now() < deadline { why } else { silent(limit) })?;
        if !said.is_empty() {
            return Ok(said);
        }
        is_there();
    }
}

/// The same as it was said and as it is read, past what a shell prints before the program begins.
///
/// # Errors
/// There is none, in words.
pub(crate) fn first_answer(
    channel: &dyn Conversation,
    limit: Duration,
    is_there: &mut dyn FnMut(),
) -> Result<(String, Reply), String> {
    let mut said = String::new();
    for _ in 0..GREETING_LINES {
        said = next_answer(channel, limit, is_there)?;
        if let Ok(reply) = serde_json::from_str(&said) {
            return Ok((said, reply));
        }
    }
    Err(format!("it answered {said:?} to the request"))
}

/// At most so many lines.
const GREETING_LINES: usize = 50;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Says these lines, and then nothing more.
    #[derive(Debug)]
    struct Scripted(Mutex<VecDeque<&'static str>>);

    impl Conversation for Scripted {
        fn say(&self, _line: &str) -> Result<(), String> {
            Ok(())
        }

        fn hear(&self, limit: Duration) -> Result<String, String> {
            held(&self.0).pop_front().map(str::to_owned).ok_or_else(|| silent(limit))
        }

        fn end(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn who_says_that_it_is_there_is_waited_for_and_who_is_silent_is_not() {
        let scripted = |lines: &[&'static str]| Scripted(Mutex::new(lines.iter().copied().collect()));
        let mut there = 0;
        let busy = scripted(&["", "", "\"Done\""]);
        assert_eq!(next_answer(&busy, ANSWER_MAX, &mut || there += 1), Ok("\"Done\"".to_owned()));
        assert_eq!(there, 2);
        let stopped = scripted(&["", ""]);
        let why = "it has not answered for 30 s".to_owned();
        assert_eq!(next_answer(&stopped, ANSWER_MAX, &mut || {}), Err(why));
        // Those lines are no greeting of a shell, of which there are so many at most.
        let mut long = vec![""; 3 * GREETING_LINES];
        long.extend(["welcome", "\"Done\""]);
        let (said, reply) = first_answer(&scripted(&long), ANSWER_MAX, &mut || {}).unwrap();
        assert!(said == "\"Done\"" && matches!(reply, Reply::Done), "{said}");
    }
}

//! The processes in the pods, as this side gives them tasks.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::kubectl::{CommandLimit, Kubectl};
use super::manifests::{CONTAINER, COPIED_S, DIRECTORY};
use super::protocol::{Answer, PodMessage, Task};
use crate::LabError;
use crate::channel::{Channel, Conversation, Lost, held};
use crate::remote::Failed;

/// How long an answer may take: a server or a policy is waited for, for each size of answers.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// The same for what a client's process asks of its server's. It is less than the client waits for: a later answer
/// would be taken for the client's next task.
const SERVER_MAX: Duration = Duration::from_secs(45);

/// A process of this program in a pod. Dropped, it ends and closes all that it has opened.
#[derive(Debug)]
pub(super) struct PodProcess {
    /// For messages: "pod client-host on node-1".
    name: String,
    pod: String,
    channel: Mutex<Box<dyn Conversation>>,
}

impl PodProcess {
    /// Starts it by `kubectl exec`.
    ///
    /// # Errors
    /// It cannot be started, in words.
    pub(super) fn start(
        kubectl: &Kubectl,
        namespace: &str,
        (pod, node): (&str, &str),
        program: &str,
    ) -> Result<PodProcess, String> {
        let within = ["--namespace", namespace, pod, "--container", CONTAINER];
        let channel =
            kubectl.converse("exec", &[&within[..], &["--", program, "remote", "--hand"]].concat())?;
        let name = format!("pod {pod} on {node}");
        Ok(PodProcess { name, pod: pod.to_owned(), channel: Mutex::new(Box::new(channel)) })
    }

    /// Its pod, and where that is.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the pod, without that of its node.
    pub(super) fn pod(&self) -> &str {
        &self.pod
    }

    /// Ends the conversation at once: its pod is gone, or on a node that is.
    pub(super) fn cut(&self) {
        held(&self.channel).cut();
    }

    /// Gives it a task, and passes on what it asks of the server's process meanwhile.
    ///
    /// # Errors
    /// [`LabError::Machine`]: it does not answer, or could not; [`LabError::Broken`]: it is the candidate that failed.
    pub(super) fn ask(
        &self,
        task: &Task,
        server: Option<&Arc<PodProcess>>,
        candidate: &str,
    ) -> Result<Answer, LabError> {
        self.answer_within(ANSWER_MAX, task, server, candidate)
    }

    fn answer_within(
        &self,
        limit: Duration,
        task: &Task,
        server: Option<&Arc<PodProcess>>,
        candidate: &str,
    ) -> Result<Answer, LabError> {
        match self.answered(limit, task, server)? {
            Answer::Failed(Failed { broken: Some(what), .. }) => {
                Err(LabError::Broken { candidate: candidate.to_owned(), what })
            }
            Answer::Failed(Failed { why, remedy, fault, .. }) => {
                Err(LabError::Machine { machine: self.name.clone(), why, remedy, fault })
            }
            answer => Ok(answer),
        }
    }

    /// Its answer. What it asks of the server's process is passed on. Where that fails it is sent the failure and
    /// can go on, since it may be the client of other servers; the error returned is then the server's, as the
    /// cause of its own.
    fn answered(
        &self,
        limit: Duration,
        task: &Task,
        server: Option<&Arc<PodProcess>>,
    ) -> Result<Answer, LabError> {
        let mut channel = held(&self.channel);
        let mut cause = None;
        let answered = self.conversed(&**channel, (limit, task), server, &mut cause);
        if let Err(error) = &answered {
            // What it answers later would be taken for the answer to another task.
            channel.cut();
            *channel = Box::new(Lost(error.to_string()));
        }
        cause.map_or(answered, Err)
    }

    fn conversed(
        &self,
        channel: &dyn Conversation,
        (limit, task): (Duration, &Task),
        server: Option<&Arc<PodProcess>>,
        cause: &mut Option<LabError>,
    ) -> Result<Answer, LabError> {
        let lost = |why: String| LabError::of_machine(self.name.clone(), why);
        let line = |what: serde_json::Result<String>| what.map_err(|error| lost(error.to_string()));
        channel.say(&line(serde_json::to_string(task))?).map_err(lost)?;
        loop {
            let text = channel.hear(limit).map_err(lost)?;
            let message = serde_json::from_str(&text)
                .map_err(|error| lost(format!("it said {:?}: {error}", shortened(&text))))?;
            match message {
                PodMessage::Answer(answer) => return Ok(answer),
                PodMessage::Ask(task) => {
                    let server =
                        server.ok_or_else(|| lost("it asks for a server, and has none".to_owned()))?;
                    let answer = server.answer_within(SERVER_MAX, &task, None, "").unwrap_or_else(|error| {
                        let failed = Failed { why: error.to_string(), ..Failed::default() };
                        cause.get_or_insert(error);
                        Answer::Failed(failed)
                    });
                    channel.say(&line(serde_json::to_string(&answer))?).map_err(lost)?;
                }
            }
        }
    }

    /// The error where an answer is to something else.
    pub(super) fn strange(&self, answer: &Answer) -> LabError {
        let why = format!("its answer does not fit the task: {}", shortened(&format!("{answer:?}")));
        LabError::of_machine(self.name.clone(), why)
    }
}

/// The first 200 characters, as many as fit into a message.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Copies this program into a pod whose image does not have it, in as much time as the pod waits for it.
///
/// # Errors
/// In words.
pub(super) fn copy(
    kubectl: &Kubectl,
    (namespace, pod): (&str, &str),
    content: &[u8],
    stop: &AtomicBool,
) -> Result<(), String> {
    let bytes = content.len();
    // Whole or not at all: the pod's own process waits for it.
    let receive = format!(
        "set -e; part={DIRECTORY}/part; cat >$part; test $(wc -c <$part) -eq {bytes} || \
         {{ echo 'only a part of the program arrived' >&2; exit 1; }}; chmod 755 $part; \
         $part --version >/dev/null || {{ echo 'this build of hostgap does not run in that image: \
         take a static one, as a release has it' >&2; exit 1; }}; mv $part {DIRECTORY}/hostgap"
    );
    let args = ["exec", "--stdin", "--namespace", namespace, pod, "--container", CONTAINER, "--", "sh", "-c"];
    let limit = CommandLimit { time: Duration::from_secs(COPIED_S.into()), stop };
    kubectl.output_within(limit, &[&args[..], &[&receive]].concat(), content).map(drop)
}

/// The conversation with the lease's pod. While it lives the race's objects stay.
///
/// # Errors
/// It cannot be started, in words.
pub(super) fn hold_lease(kubectl: &Kubectl, namespace: &str, pod: &str) -> Result<Channel, String> {
    let channel =
        kubectl.converse("attach", &["--namespace", namespace, pod, "--container", CONTAINER, "--quiet"])?;
    // It is asked once: only a process that has heard this side ends with it.
    channel.say("hold")?;
    match channel.hear(ANSWER_MAX)?.as_str() {
        "held" => Ok(channel),
        other => Err(format!("the pod that guards the race said {:?}", shortened(other))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Says what was written down for it, and keeps what it hears.
    #[derive(Debug)]
    struct Scripted {
        lines: Mutex<VecDeque<String>>,
        heard: Arc<Mutex<Vec<String>>>,
    }

    impl Conversation for Scripted {
        fn say(&self, line: &str) -> Result<(), String> {
            held(&self.heard).push(line.to_owned());
            Ok(())
        }

        fn hear(&self, _: Duration) -> Result<String, String> {
            held(&self.lines).pop_front().ok_or_else(|| "it has no more to say".to_owned())
        }

        fn end(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    fn process(name: &str, channel: impl Conversation + 'static) -> PodProcess {
        PodProcess { name: name.to_owned(), pod: name.to_owned(), channel: Mutex::new(Box::new(channel)) }
    }

    #[test]
    fn who_asks_a_server_that_is_lost_goes_on_with_others() {
        let failed = Failed { why: "no answer".to_owned(), ..Failed::default() };
        let messages = [
            PodMessage::Ask(Task::Spent),
            PodMessage::Answer(Answer::Failed(failed)),
            PodMessage::Answer(Answer::Done),
        ];
        let lines = messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let client = process("client", Scripted { lines: Mutex::new(lines), heard: Arc::clone(&heard) });
        let server = Arc::new(process("server", Lost("it was deleted".to_owned())));
        let trial = Task::Close { candidate: "pod".to_owned() };
        match client.ask(&trial, Some(&server), "pod") {
            Err(LabError::Machine { machine, why, .. }) => {
                assert_eq!((machine.as_str(), why.as_str()), ("server", "it was deleted"));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(client.ask(&trial, None, "pod"), Ok(Answer::Done)));
        let heard = held(&heard);
        let task = serde_json::to_string(&trial).unwrap();
        assert_eq!((heard.len(), &heard[0], &heard[2]), (3, &task, &task));
        assert!(heard[1].contains("it was deleted"), "{}", heard[1]);
    }
}

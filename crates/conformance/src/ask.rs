//! One call of a plugin: its environment, its input, and how it is made.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{Command, Conflist, Plugin, Request, Version};
use linux::Netns;
use linux::process::{Child, Spawn};
use serde_json::{Map, Value};

use crate::answer::{Added, Answer};
use crate::node;
use crate::outcome::{Ended, Exchange, Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};
use crate::state::State;
use crate::transcript::{Called, Manner};

/// How long a plugin may take. Those of the CNI project wait up to ten seconds for IPv6 addresses.
const LIMIT: Duration = Duration::from_secs(30);
/// How much of an output is read, in bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A call that is not made yet. The environment has the variables that are set, those of programs
/// (`PATH`), and nothing else.
#[derive(Clone)]
pub(crate) struct Ask<'s> {
    scene: &'s Scene<'s>,
    program: PathBuf,
    variables: BTreeMap<&'static str, String>,
    input: Input,
    manner: Manner,
}

#[derive(Clone)]
enum Input {
    Object(Map<String, Value>),
    Raw(String),
}

impl<'s> Ask<'s> {
    /// With the command alone in the environment, and the plugin's configuration as input.
    pub(crate) fn bare(scene: &'s Scene<'s>, command: &str) -> Ask<'s> {
        let request = request(scene, scene.subject.conf.clone());
        Ask {
            scene,
            program: scene.subject.program.clone(),
            variables: BTreeMap::from([("CNI_COMMAND", command.to_owned())]),
            input: Input::Object(request),
            manner: Manner::Plain,
        }
    }

    /// Without a container, but with the directories of other plugins.
    pub(crate) fn of_network(scene: &'s Scene<'s>, command: Command) -> Ask<'s> {
        Ask::bare(scene, &command.to_string()).set("CNI_PATH", scene.subject.cni_path())
    }

    /// As a runtime makes it for a container.
    pub(crate) fn of_container(scene: &'s Scene<'s>, command: &str, container: &Container) -> Ask<'s> {
        Ask::bare(scene, command)
            .set("CNI_CONTAINERID", container.name.to_string())
            .set("CNI_NETNS", container.path())
            .set("CNI_IFNAME", IFNAME)
            .set("CNI_PATH", scene.subject.cni_path())
    }

    /// The same call of another plugin of the list.
    pub(crate) fn for_predecessor(&self, program: &Path, plugin: &Plugin) -> Ask<'s> {
        let mut conf = request(self.scene, plugin.conf.clone());
        if let Input::Object(own) = &self.input
            && let Some(previous) = own.get("prevResult")
        {
            conf.insert("prevResult".to_owned(), previous.clone());
        }
        Ask { program: program.to_owned(), input: Input::Object(conf), manner: Manner::Plain, ..self.clone() }
    }

    /// With a variable set.
    pub(crate) fn set(mut self, name: &'static str, value: impl Into<String>) -> Ask<'s> {
        self.variables.insert(name, value.into());
        self
    }

    /// Leaves out a variable of the protocol.
    pub(crate) fn unset(mut self, name: &'static str) -> Ask<'s> {
        self.variables.remove(name);
        self
    }

    /// With a key of the input set.
    pub(crate) fn key(mut self, key: &str, value: impl Into<Value>) -> Ask<'s> {
        if let Input::Object(object) = &mut self.input {
            object.insert(key.to_owned(), value.into());
        }
        self
    }

    /// In another version of the specification.
    pub(crate) fn version(self, version: impl Into<Value>) -> Ask<'s> {
        self.key("cniVersion", version)
    }

    /// With another configuration of the plugin.
    pub(crate) fn conf(mut self, conf: &Map<String, Value>) -> Ask<'s> {
        let previous = match &self.input {
            Input::Object(object) => object.get("prevResult").cloned(),
            Input::Raw(_) => None,
        };
        self.input = Input::Object(request(self.scene, conf.clone()));
        match previous {
            Some(previous) => self.key("prevResult", previous),
            None => self,
        }
    }

    /// With the result of ADD, as for DEL and CHECK.
    pub(crate) fn previous(self, added: &Added) -> Ask<'s> {
        self.key("prevResult", added.result.clone())
    }

    /// With this text as input.
    pub(crate) fn raw(mut self, input: &str) -> Ask<'s> {
        self.input = Input::Raw(input.to_owned());
        self
    }

    /// At the same time as others; it matters to the script alone.
    pub(crate) fn together(mut self) -> Ask<'s> {
        self.manner = Manner::Together;
        self
    }

    /// Makes the call, and waits for its end. After a DEL the plugins before are called too, as by a runtime.
    pub(crate) fn send(self) -> Judged<Answer> {
        let started = self.start()?;
        let answer = self.finish(started)?;
        let is_subject = self.program == self.scene.subject.program;
        if is_subject && self.variables.get("CNI_COMMAND").is_some_and(|command| command == "DEL") {
            for (program, plugin) in self.scene.subject.before.iter().rev() {
                self.for_predecessor(program, plugin).send()?;
            }
        }
        Ok(answer)
    }

    /// Makes the call, and kills it if it has not ended in time.
    pub(crate) fn kill_after(mut self, time: Duration) -> Judged<Answer> {
        self.manner = Manner::Killed(time);
        let mut started = self.start()?;
        if started.child.wait_for(time)?.is_none() {
            started.child.kill()?;
        }
        self.finish(started)
    }

    /// Makes the call; how long it took, beside the answer.
    pub(crate) fn timed(self) -> Judged<(Answer, Duration)> {
        let begun = Instant::now();
        Ok((self.send()?, begun.elapsed()))
    }

    fn text(&self) -> String {
        match &self.input {
            Input::Object(object) => Value::Object(object.clone()).to_string(),
            Input::Raw(text) => text.clone(),
        }
    }

    fn start(&self) -> Judged<Started> {
        let [input, output, log] = ["in", "out", "log"].map(|kind| self.scene.file(kind));
        let written = std::fs::write(&input, self.text()).and_then(|()| std::fs::write(&log, ""));
        written.map_err(|error| Stop::undecided(&format!("write the plugin's input: {error}")))?;
        let mut env: Vec<(String, String)> =
            self.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        // Shells write there, and nearly all else is read-only.
        env.push(("TMPDIR".to_owned(), "/run".to_owned()));
        env.push(("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()));
        let spawn = Spawn {
            env,
            clean_env: true,
            netns: Some(Netns::open(&node::name()?)?),
            input: Some(input),
            output: Some(output.clone()),
            log: Some(log.clone()),
            fresh_kernel_files: true,
            // Whatever it starts ends with it.
            new_pid_namespace: true,
            ..Spawn::new(&self.program)
        };
        Ok(Started { child: spawn.start()?, output, log })
    }

    fn finish(&self, mut started: Started) -> Judged<Answer> {
        let ended = match started.child.wait_for(LIMIT)? {
            Some(status) => status
                .code()
                .map_or_else(|| Ended::Signal(status.signal().unwrap_or_default()), Ended::Status),
            None => {
                started.child.kill()?;
                Ended::TimedOut
            }
        };
        let environment = self.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let exchange = Exchange {
            environment: environment.collect(),
            input: self.text(),
            ended,
            stdout: beginning(&started.output),
            stderr: beginning(&started.log),
        };
        let called =
            Called { program: self.program.clone(), exchange: exchange.clone(), manner: self.manner };
        let number = self.scene.transcript().call(called);
        Ok(Answer { number, exchange })
    }
}

impl Scene<'_> {
    /// A call of the plugin, as a runtime makes it for a container in its network.
    pub(crate) fn ask(&self, command: Command, container: &Container) -> Ask<'_> {
        Ask::of_container(self, &command.to_string(), container)
    }

    /// ADD, behind the plugins that are called before.
    pub(crate) fn ask_add(&self, container: &Container) -> Judged<Ask<'_>> {
        let mut ask = self.ask(Command::Add, container);
        for (program, plugin) in &self.subject.before {
            let before = ask.for_predecessor(program, plugin);
            let result = before.send()?.result().map_err(|stop| match stop {
                Stop::Failed { why, .. } => {
                    Stop::undecided(&format!("{} is called before: {why}", plugin.kind))
                }
                other => other,
            })?;
            ask = ask.key("prevResult", result);
        }
        Ok(ask)
    }

    /// ADD, which must work.
    pub(crate) fn added(&self, container: &Container) -> Judged<Added> {
        Added::of(self.ask_add(container)?.send()?)
    }

    /// DEL with the result of ADD, which must work.
    pub(crate) fn deleted(&self, container: &Container, added: &Added) -> Judged {
        self.ask(Command::Del, container).previous(added).send()?.succeeded()
    }

    /// What stands in the node's namespace when a first container has come and gone. What containers share, a bridge or
    /// rules, is made by the first and may stay.
    pub(crate) fn settled_node(&self) -> Judged<State> {
        let first = self.container("first")?;
        let added = self.added(&first)?;
        self.deleted(&first, &added)?;
        self.node()
    }
}

struct Started {
    child: Child,
    output: PathBuf,
    log: PathBuf,
}

/// What a runtime makes of a plugin's part of the configuration, in the scene's version.
fn request(scene: &Scene<'_>, conf: Map<String, Value>) -> Map<String, Value> {
    let list = Conflist { name: scene.subject.network.clone(), version: scene.version, plugins: Vec::new() };
    let request = Request::new(conf, &list, Map::new());
    match serde_json::to_value(request) {
        Ok(Value::Object(object)) => object,
        Ok(_) | Err(_) => unreachable!("a request is an object"),
    }
}

fn beginning(path: &Path) -> String {
    let mut bytes = std::fs::read(path).unwrap_or_default();
    bytes.truncate(OUTPUT_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// VERSION with nothing else, in a version.
pub(crate) fn ask_version<'s>(scene: &'s Scene<'s>, version: Version) -> Ask<'s> {
    Ask::bare(scene, "VERSION").raw(&serde_json::json!({ "cniVersion": version }).to_string())
}

//! What a case did, in order, so that it can be shown as a script.

use std::path::PathBuf;
use std::time::Duration;

use plan::quoted;
use serde_json::{Map, Value};

use crate::outcome::Exchange;

/// What a case did.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    /// A command of the shell.
    Command(String),
    Call(Box<Called>),
}

/// A call, and how it was made.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) program: PathBuf,
    pub(crate) exchange: Exchange,
    pub(crate) manner: Manner,
}

/// How a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Alone, to its end.
    Plain,
    /// At the same time as others.
    Together,
    /// It was killed after this time.
    Killed(Duration),
}

impl Transcript {
    pub(crate) fn command(&mut self, command: impl Into<String>) {
        self.lines.push(Line::Command(command.into()));
    }

    /// The number of the call.
    pub(crate) fn call(&mut self, called: Called) -> usize {
        self.lines.push(Line::Call(Box::new(called)));
        self.lines.len() - 1
    }

    /// A call by its number.
    pub(crate) fn exchange(&self, number: usize) -> Option<&Exchange> {
        match self.lines.get(number)? {
            Line::Call(called) => Some(&called.exchange),
            Line::Command(_) => None,
        }
    }

    /// All of it as a script. The shell has its own `/run` and `/var/lib`, so that nothing stays.
    pub(crate) fn script(&self) -> String {
        let mut lines = vec![
            "unshare --mount sh <<'HERE'".to_owned(),
            "mount -t tmpfs none /run; mount -t tmpfs none /var/lib".to_owned(),
        ];
        let mut together = false;
        for (number, line) in self.lines.iter().enumerate() {
            if together && !matches!(line, Line::Call(called) if called.manner == Manner::Together) {
                lines.push("wait".to_owned());
                together = false;
            }
            match line {
                Line::Command(command) => lines.push(command.clone()),
                Line::Call(called) => {
                    together = called.manner == Manner::Together;
                    lines.push(self.shown(number, called));
                }
            }
        }
        lines.push("HERE".to_owned());
        lines.join("\n")
    }

    /// A call in the shell. A result that a later call hands on is kept in a variable.
    fn shown(&self, number: usize, called: &Called) -> String {
        let Called { program, exchange, manner } = called;
        let environment =
            exchange.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let environment = environment.collect::<Vec<_>>().join(" ");
        let killer = match manner {
            // timeout takes 0 for no limit.
            Manner::Killed(after) => format!("timeout -s KILL {} ", after.as_secs_f64().max(0.0001)),
            Manner::Plain | Manner::Together => String::new(),
        };
        let program = quoted(&program.display().to_string());
        let input = self.input(number, &exchange.input);
        let call =
            format!("printf %s {input} | {environment} {killer}nsenter --net=/run/netns/node {program}");
        match manner {
            Manner::Together => format!("{call} &"),
            _ if self.is_handed_on(number) => format!("r{number}=$({call}); echo \"$r{number}\""),
            Manner::Plain | Manner::Killed(_) => format!("{call}; echo \"status $?\""),
        }
    }

    fn input(&self, number: usize, input: &str) -> String {
        let Some((rest, previous)) = with_previous(input) else { return quoted(input) };
        match self.origin(number, &previous) {
            Some(origin) => {
                let rest = Value::Object(rest).to_string();
                let open = rest.strip_suffix('}').expect("an object ends with a brace");
                format!("{}\"$r{origin}\"'}}'", quoted(&format!("{open},\"prevResult\":")))
            }
            None => quoted(input),
        }
    }

    /// The call before this one whose result this is.
    fn origin(&self, before: usize, result: &Value) -> Option<usize> {
        (0..before).rev().find(|number| {
            self.exchange(*number).is_some_and(|exchange| {
                serde_json::from_str::<Value>(&exchange.stdout).is_ok_and(|printed| printed == *result)
            })
        })
    }

    fn is_handed_on(&self, number: usize) -> bool {
        let later = (number + 1..self.lines.len()).filter_map(|later| Some((later, self.exchange(later)?)));
        later
            .filter_map(|(later, exchange)| Some((later, with_previous(&exchange.input)?.1)))
            .any(|(later, previous)| self.origin(later, &previous) == Some(number))
    }
}

/// An input without the result that it hands on, and that result.
fn with_previous(input: &str) -> Option<(Map<String, Value>, Value)> {
    let Ok(Value::Object(mut object)) = serde_json::from_str(input) else { return None };
    let previous = object.remove("prevResult")?;
    (!object.is_empty()).then_some((object, previous))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ended;

    fn called(command: &str, input: &str, stdout: &str, manner: Manner) -> Called {
        let exchange = Exchange {
            environment: vec![("CNI_COMMAND".to_owned(), command.to_owned())],
            input: input.to_owned(),
            ended: Ended::Status(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
        };
        Called { program: "/opt/cni/bin/x".into(), exchange, manner }
    }

    #[test]
    fn a_result_is_handed_on_by_a_variable() {
        let mut transcript = Transcript::default();
        transcript.command("ip netns add a");
        transcript.call(called("ADD", r#"{"type":"x"}"#, r#"{ "ips": [] }"#, Manner::Plain));
        transcript.call(called("CHECK", r#"{"prevResult":{"ips":[]},"type":"x"}"#, "", Manner::Plain));
        transcript.call(called("DEL", r#"{"prevResult":{"ips":[7]},"type":"x"}"#, "", Manner::Plain));
        let script = transcript.script();
        let lines: Vec<&str> = script.lines().skip(3).collect();
        let enter = "nsenter --net=/run/netns/node /opt/cni/bin/x";
        assert_eq!(
            lines,
            [
                format!(r#"r1=$(printf %s '{{"type":"x"}}' | CNI_COMMAND=ADD {enter}); echo "$r1""#),
                format!(
                    r#"printf %s '{{"type":"x","prevResult":'"$r1"'}}' | CNI_COMMAND=CHECK {enter}; echo "status $?""#
                ),
                format!(
                    r#"printf %s '{{"prevResult":{{"ips":[7]}},"type":"x"}}' | CNI_COMMAND=DEL {enter}; echo "status $?""#
                ),
                "HERE".to_owned(),
            ]
        );
    }

    #[test]
    fn calls_at_the_same_time_are_waited_for() {
        let mut transcript = Transcript::default();
        for _ in 0..2 {
            transcript.call(called("ADD", "{}", "", Manner::Together));
        }
        transcript.call(called("DEL", "no JSON", "", Manner::Killed(Duration::from_millis(3))));
        transcript.call(called("ADD", "at once", "", Manner::Killed(Duration::ZERO)));
        let script = transcript.script();
        let lines: Vec<&str> = script.lines().skip(2).collect();
        assert!(lines[..2].iter().all(|line| line.ends_with("/x &")), "{script}");
        assert_eq!((lines[2], lines[5]), ("wait", "HERE"));
        assert!(lines[4].contains("timeout -s KILL 0.0001 nsenter"), "{script}");
        assert!(
            script.contains("printf %s 'no JSON' | CNI_COMMAND=DEL timeout -s KILL 0.003 nsenter"),
            "{script}"
        );
    }
}

//! A plugin's answer, and what it must be.

use cni::Failure;
use ipnet::IpNet;
use serde_json::Value;

use crate::outcome::{Exchange, Judged, Stop};
use crate::scene::Container;

/// What came of a call.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Its number in the transcript.
    pub(crate) number: usize,
    pub(crate) exchange: Exchange,
}

/// The result that a successful ADD printed.
pub(crate) struct Added {
    pub(crate) result: Value,
    pub(crate) answer: Answer,
}

impl Added {
    pub(crate) fn of(answer: Answer) -> Judged<Added> {
        Ok(Added { result: answer.result()?, answer })
    }

    /// The entries of a list in the result; none if there is no such list.
    pub(crate) fn list(&self, key: &str) -> Vec<Value> {
        self.result.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// The entries of `ips`; a fault if one is not in CIDR notation.
    pub(crate) fn addresses(&self) -> Judged<Vec<IpNet>> {
        self.parsed(self.list("ips"))
    }

    /// Those that are on an interface of this container, and not external to it; all of them if the result says of none
    /// on which it is.
    pub(crate) fn addresses_in(&self, container: &Container) -> Judged<Vec<IpNet>> {
        let (ips, interfaces) = (self.list("ips"), self.list("interfaces"));
        let says = ips.iter().any(|ip| !ip["interface"].is_null());
        let interface_of = |ip: &Value| interfaces.get(usize::try_from(ip["interface"].as_u64()?).ok()?);
        let is_inside =
            |ip: &Value| interface_of(ip).is_some_and(|one| one["sandbox"] == container.path().as_str());
        self.parsed(ips.into_iter().filter(|ip| !says || is_inside(ip)).collect())
    }

    fn parsed(&self, ips: Vec<Value>) -> Judged<Vec<IpNet>> {
        let texts = ips.into_iter().map(|ip| ip["address"].as_str().unwrap_or_default().to_owned());
        let parsed = texts.map(|text| {
            let wrong = || {
                self.answer.fault(format!("`ips` has the address {text:?}, which is not in CIDR notation"))
            };
            text.parse().map_err(|_| wrong())
        });
        parsed.collect()
    }
}

/// The error object that a failed call printed.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    answer: Answer,
    pub(crate) object: Value,
}

impl Answer {
    /// A fault that this call shows.
    pub(crate) fn fault(&self, why: impl Into<String>) -> Stop {
        Stop::Failed { why: why.into(), call: Some(self.number) }
    }

    /// The value of `CNI_COMMAND`: "ADD".
    pub(crate) fn command(&self) -> &str {
        let variable = self.exchange.environment.iter().find(|(name, _)| name == "CNI_COMMAND");
        variable.map_or("the call", |(_, command)| command.as_str())
    }

    /// It ended with status 0.
    pub(crate) fn succeeded(&self) -> Judged {
        if self.exchange.ended.is_success() {
            return Ok(());
        }
        Err(self.fault(format!("{} ended with {}: {}", self.command(), self.exchange.ended, self.reason())))
    }

    /// Why it failed, as it says itself.
    pub(crate) fn reason(&self) -> String {
        let why = Failure::read(&self.exchange.stdout).map(|failure| failure.to_string());
        why.unwrap_or_else(|| self.exchange.stderr.trim().to_owned())
    }

    /// It ended with status 0 and printed nothing.
    pub(crate) fn silent(&self) -> Judged {
        self.succeeded()?;
        match self.exchange.stdout.trim() {
            "" => Ok(()),
            printed => {
                Err(self.fault(format!("{} printed {printed}, and nothing is expected", self.command())))
            }
        }
    }

    /// It ended with status 0 and printed one JSON object.
    pub(crate) fn result(&self) -> Judged<Value> {
        self.succeeded()?;
        match serde_json::from_str(&self.exchange.stdout) {
            Ok(Value::Object(object)) => Ok(Value::Object(object)),
            Ok(_) => Err(self.fault("standard output is JSON, and no object")),
            Err(error) => Err(self.fault(format!("standard output is not one JSON object: {error}"))),
        }
    }

    /// It ended with another status than 0.
    pub(crate) fn failed(&self, because: &str) -> Judged {
        if self.exchange.ended.is_success() {
            return Err(self.fault(format!("{} succeeded, {because}", self.command())));
        }
        Ok(())
    }

    /// It failed with an error object on standard output, for sentences that ask for a code: the object itself is only
    /// recommended. It is one that has a code and a message.
    pub(crate) fn refused(&self, because: &str) -> Judged<Refusal> {
        self.failed(because)?;
        let shown = || self.exchange.ended;
        let object: Value = serde_json::from_str(&self.exchange.stdout).map_err(|error| {
            let why = format!("it failed ({}) without an error object on standard output: {error}", shown());
            self.fault(why)
        })?;
        if !object["code"].is_u64() {
            return Err(self.fault(format!(
                "the error object has the code {}, and a number is expected",
                object["code"]
            )));
        }
        if object["msg"].as_str().is_none_or(|message| message.trim().is_empty()) {
            return Err(
                self.fault(format!("the error object has the msg {}, and a text is expected", object["msg"]))
            );
        }
        Ok(Refusal { answer: self.clone(), object })
    }
}

impl Refusal {
    pub(crate) fn fault(&self, why: impl Into<String>) -> Stop {
        self.answer.fault(why)
    }

    /// Passes if `code` is this number; otherwise a fault that names both.
    pub(crate) fn code(&self, expected: u64, meaning: &str) -> Judged<&Refusal> {
        let code = &self.object["code"];
        if code.as_u64() == Some(expected) {
            return Ok(self);
        }
        Err(self.fault(format!(
            "the code is {code}, and {expected} means {meaning}; the message is {}",
            self.object["msg"]
        )))
    }

    /// Passes if `msg` or `details` contains this text.
    pub(crate) fn names(&self, what: &str) -> Judged {
        let text = |key: &str| self.object[key].as_str().unwrap_or_default().to_owned();
        if text("msg").contains(what) || text("details").contains(what) {
            return Ok(());
        }
        Err(self.fault(format!("the message does not name {what}: {}", self.object["msg"])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ended;

    fn answer(status: i32, stdout: &str) -> Answer {
        let exchange = Exchange {
            environment: vec![("CNI_COMMAND".to_owned(), "ADD".to_owned())],
            input: String::new(),
            ended: Ended::Status(status),
            stdout: stdout.to_owned(),
            stderr: "log\n".to_owned(),
        };
        Answer { number: 0, exchange }
    }

    #[track_caller]
    fn check<T: std::fmt::Debug>(judged: Judged<T>, says: &str) {
        match judged {
            Err(Stop::Failed { why, call: Some(0) }) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn success_is_a_status_and_what_is_printed() {
        assert!(answer(0, "{\"ips\":[]}\n").result().is_ok());
        assert!(answer(0, "\n").silent().is_ok());
        check(answer(1, "").succeeded(), "ADD ended with exit status 1: log");
        check(answer(1, r#"{"code":7,"msg":"no"}"#).succeeded(), "exit status 1: no (code 7)");
        check(answer(0, "log {}").result(), "not one JSON object");
        check(answer(0, "[]").result(), "no object");
        check(answer(0, "{}").silent(), "ADD printed {}, and nothing");
    }

    #[test]
    fn a_refusal_has_a_code_and_a_message() {
        let refused = |status, stdout| answer(status, stdout).refused("it should not");
        let refusal = refused(1, r#"{"code":4,"msg":"CNI_IFNAME is bad"}"#).unwrap();
        assert!(refusal.code(4, "x").is_ok_and(|refusal| refusal.names("CNI_IFNAME").is_ok()));
        check(refusal.names("CNI_NETNS"), "does not name CNI_NETNS");
        check(refusal.code(7, "an invalid configuration").map(drop), "the code is 4, and 7 means an invalid");
        check(refused(0, "{}"), "ADD succeeded, it should not");
        check(refused(1, "oh"), "without an error object");
        check(refused(1, r#"{"msg":"x"}"#), "code null");
        check(refused(1, r#"{"code":4,"msg":" "}"#), "msg");
    }
}

//! A call of a plugin, as the plugin reads it: the environment (section 2, "Parameters").

use std::path::PathBuf;

use crate::name::{RULE, is_name};
use crate::{Command, ErrorCode, Failure};

/// What a plugin was called for, with the parameters that the specification demands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Join a container to the network.
    Add(Attachment),
    /// Take that back. The namespace may be gone and its path with it.
    Del(Attachment),
    /// Say whether an attachment is as it should be.
    Check(Attachment),
    /// Remove what belongs to no attachment any more.
    Gc {
        /// The directories of other plugins.
        path: Vec<PathBuf>,
    },
    /// Say whether ADD could be done.
    Status {
        /// The directories of other plugins.
        path: Vec<PathBuf>,
    },
    /// Say which versions are spoken.
    Version,
}

/// A container's interface in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The container's name for the runtime; letters, digits, `_`, `.` and `-`, a letter or digit first.
    pub container_id: String,
    /// What the interface is called in the container.
    pub ifname: String,
    /// The path of the container's namespace; `None` at a DEL whose namespace is gone.
    pub netns: Option<String>,
    /// `CNI_ARGS`: pairs that a runtime or a user handed over.
    pub args: Vec<(String, String)>,
    /// The directories of other plugins.
    pub path: Vec<PathBuf>,
}

impl Invocation {
    /// The command by which the runtime asked for it.
    pub fn command(&self) -> Command {
        match self {
            Invocation::Add(_) => Command::Add,
            Invocation::Del(_) => Command::Del,
            Invocation::Check(_) => Command::Check,
            Invocation::Gc { .. } => Command::Gc,
            Invocation::Status { .. } => Command::Status,
            Invocation::Version => Command::Version,
        }
    }

    /// Reads the environment; `variable` gives the value of one, or nothing if it is not set.
    ///
    /// # Errors
    /// Code 4, with the name of each variable that is missing or wrong.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Invocation, Failure> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let named = set("CNI_COMMAND").ok_or_else(|| missing(&["CNI_COMMAND"]))?;
        let known = Command::ALL.into_iter().find(|command| command.to_string() == named);
        let command = known.ok_or_else(|| {
            let all = Command::ALL.map(|command| command.to_string()).join(", ");
            invalid(format!("CNI_COMMAND is {named:?}; one of {all} is expected"))
        })?;
        let path = || set("CNI_PATH").map(|text| std::env::split_paths(&text).collect()).unwrap_or_default();
        Ok(match command {
            Command::Add => Invocation::Add(attachment(set, true, path())?),
            Command::Del => Invocation::Del(attachment(set, false, path())?),
            Command::Check => Invocation::Check(attachment(set, true, path())?),
            Command::Gc => Invocation::Gc { path: path() },
            Command::Status => Invocation::Status { path: path() },
            Command::Version => Invocation::Version,
        })
    }
}

fn attachment(
    set: impl Fn(&str) -> Option<String>,
    needs_netns: bool,
    path: Vec<PathBuf>,
) -> Result<Attachment, Failure> {
    let (container_id, ifname, netns) = (set("CNI_CONTAINERID"), set("CNI_IFNAME"), set("CNI_NETNS"));
    let needed = [
        ("CNI_CONTAINERID", container_id.is_some()),
        ("CNI_NETNS", netns.is_some() || !needs_netns),
        ("CNI_IFNAME", ifname.is_some()),
    ];
    let (Some(container_id), Some(ifname), true) = (container_id, ifname, needed[1].1) else {
        let names = needed.iter().filter(|(_, is_set)| !is_set).map(|(name, _)| *name);
        return Err(missing(&names.collect::<Vec<_>>()));
    };
    if !is_name(&container_id) {
        return Err(invalid(format!("CNI_CONTAINERID is {container_id:?}; {RULE}")));
    }
    let args = arguments(&set("CNI_ARGS").unwrap_or_default())?;
    Ok(Attachment { container_id, ifname, netns, args, path })
}

/// "Alphanumeric key-value pairs separated by semicolons", `A=1;B=2`.
fn arguments(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let pairs = text.split(';').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| invalid(format!("CNI_ARGS is {text:?}; pairs like A=1;B=2 are expected")))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

fn missing(names: &[&str]) -> Failure {
    invalid(format!("missing in the environment: {}", names.join(", ")))
}

fn invalid(message: String) -> Failure {
    Failure::new(ErrorCode::INVALID_ENVIRONMENT, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Invocation, Failure> {
        Invocation::read(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const WHOLE: [(&str, &str); 6] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web=1"),
        ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
    ];

    fn without(name: &str, command: &str) -> Vec<(&'static str, String)> {
        let others = WHOLE.iter().filter(|(key, _)| *key != name && *key != "CNI_COMMAND");
        let mut variables: Vec<_> = others.map(|(key, value)| (*key, (*value).to_owned())).collect();
        variables.push(("CNI_COMMAND", command.to_owned()));
        variables
    }

    fn read_owned(variables: &[(&str, String)]) -> Result<Invocation, Failure> {
        let borrowed: Vec<(&str, &str)> =
            variables.iter().map(|(key, value)| (*key, value.as_str())).collect();
        read(&borrowed)
    }

    #[test]
    fn what_a_runtime_sets_is_read() {
        let Invocation::Add(read) = read(&WHOLE).unwrap() else { panic!("ADD") };
        let pairs = [("IgnoreUnknown", "1"), ("K8S_POD_NAME", "web=1")];
        let expected = Attachment {
            container_id: "c1".into(),
            ifname: "eth0".into(),
            netns: Some("/run/netns/a".into()),
            args: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            path: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn each_command_demands_what_it_needs() {
        for (command, name, says) in [
            ("ADD", "CNI_NETNS", "missing in the environment: CNI_NETNS"),
            ("CHECK", "CNI_NETNS", "missing in the environment: CNI_NETNS"),
            ("DEL", "CNI_IFNAME", "missing in the environment: CNI_IFNAME"),
            ("ADD", "CNI_CONTAINERID", "missing in the environment: CNI_CONTAINERID"),
        ] {
            let failure = read_owned(&without(name, command)).unwrap_err();
            assert_eq!((failure.code, failure.message.as_str()), (Some(ErrorCode(4)), says));
        }
        let Invocation::Del(del) = read_owned(&without("CNI_NETNS", "DEL")).unwrap() else { panic!("DEL") };
        assert_eq!(del.netns, None);
        let bare = [("CNI_COMMAND", "VERSION")];
        assert_eq!(read(&bare).unwrap(), Invocation::Version);
        assert_eq!(read(&[("CNI_COMMAND", "GC")]).unwrap(), Invocation::Gc { path: vec![] });
        let failure = read(&[("CNI_COMMAND", "ADD")]).unwrap_err();
        assert_eq!(failure.message, "missing in the environment: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME");
    }

    #[test]
    fn wrong_values_are_named() {
        let with = |name: &'static str, value: &str| {
            let mut variables = without(name, "ADD");
            variables.push((name, value.to_owned()));
            read_owned(&variables).unwrap_err().message
        };
        assert!(with("CNI_CONTAINERID", "../etc").contains("\"../etc\""));
        assert!(with("CNI_ARGS", "A=1;B").contains("CNI_ARGS is \"A=1;B\""));
        let failure = read(&[("CNI_COMMAND", "add")]).unwrap_err();
        assert_eq!(
            failure.message,
            "CNI_COMMAND is \"add\"; one of ADD, DEL, CHECK, GC, STATUS, VERSION is expected"
        );
        assert_eq!(read(&[]).unwrap_err().message, "missing in the environment: CNI_COMMAND");
    }
}

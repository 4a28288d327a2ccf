//! A call of a plugin, as its runtime makes it: the environment (section 2, "Parameters").

use std::fmt;

use crate::Version;

/// What a plugin is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Join the container to the network.
    Add,
    /// Undo the ADD. It should succeed also where nothing is left to undo.
    Del,
    /// Say whether what ADD made is as it should be (0.4.0).
    Check,
    /// Remove what belongs to no attachment any more (1.1.0).
    Gc,
    /// Say whether ADD could be done (1.1.0).
    Status,
    /// Say which versions are spoken.
    Version,
}

impl Command {
    /// Every command, with VERSION last.
    pub const ALL: [Command; 6] =
        [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version];

    /// The version that brought it, of those that are known here.
    pub fn since(self) -> Version {
        match self {
            Command::Add | Command::Del | Command::Version => Version::V0_3_0,
            Command::Check => Version::V0_4_0,
            Command::Gc | Command::Status => Version::V1_1_0,
        }
    }
}

/// The parameters of a call that are in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What to do: `CNI_COMMAND`.
    pub command: Command,
    /// The runtime's name for the container: `CNI_CONTAINERID`.
    pub container_id: String,
    /// The path of the container's network namespace: `CNI_NETNS`.
    pub netns: String,
    /// What the container's interface shall be called: `CNI_IFNAME`.
    pub ifname: String,
    /// The user's own arguments, `A=1;B=2`: `CNI_ARGS`.
    pub args: String,
    /// Where plugins look for those that they call, directories with colons: `CNI_PATH`.
    pub path: String,
}

impl Call {
    /// The variables with their values. All are set, the empty ones too, lest a plugin inherit another's.
    pub fn environment(&self) -> [(&'static str, String); 6] {
        [
            ("CNI_COMMAND", self.command.to_string()),
            ("CNI_CONTAINERID", self.container_id.clone()),
            ("CNI_NETNS", self.netns.clone()),
            ("CNI_IFNAME", self.ifname.clone()),
            ("CNI_ARGS", self.args.clone()),
            ("CNI_PATH", self.path.clone()),
        ]
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_set() {
        let call = Call {
            command: Command::Del,
            container_id: "c1".to_owned(),
            netns: "/run/netns/a".to_owned(),
            ifname: "eth0".to_owned(),
            args: String::new(),
            path: "/opt/cni/bin:/usr/lib/cni".to_owned(),
        };
        let lines = call.environment().map(|(name, value)| format!("{name}={value}"));
        let expected = [
            "CNI_COMMAND=DEL",
            "CNI_CONTAINERID=c1",
            "CNI_NETNS=/run/netns/a",
            "CNI_IFNAME=eth0",
            "CNI_ARGS=",
            "CNI_PATH=/opt/cni/bin:/usr/lib/cni",
        ];
        assert_eq!(lines, expected);
    }
}

//! A plan as the commands a person would type. They are for reading and copying; nothing here runs them, and what
//! `apply` does is the same change by netlink and files. A test runs them and compares.

use std::net::IpAddr;

use linux::IfName;

use crate::forwarding::Splice;
use crate::{Place, Placed, Plan};

impl Plan {
    /// The plan as shell commands, in order. An nftables table is one entry of several lines (a here-document).
    ///
    /// They are to be run by a POSIX shell as root in the host's namespace, with iproute2, procps and nftables
    /// installed.
    pub fn commands(&self) -> Vec<String> {
        self.steps.iter().flat_map(Placed::commands).collect()
    }
}

impl Placed {
    /// The step as shell commands: one, or two for a namespace and its loopback.
    pub fn commands(&self) -> Vec<String> {
        self.step.effect().commands(&self.place)
    }

    /// What a person would type to take away what the commands of [`Placed::commands`] made; `None` where a namespace
    /// takes it along. Only what undo does by the journal knows what was there before.
    pub fn removal(&self) -> Option<String> {
        self.step.effect().removal(&self.place)
    }
}

/// `ip`, `bridge` or `tc`, which can enter a namespace themselves.
pub(crate) struct Tool<'a>(pub(crate) &'static str, pub(crate) &'a Place);

impl Tool<'_> {
    pub(crate) fn run(&self, arguments: &str) -> String {
        match self.1 {
            Place::Host => format!("{} {arguments}", self.0),
            Place::Netns(name) => format!("{} -n {name} {arguments}", self.0),
            Place::Path(_) => inside(self.1, &format!("{} {arguments}", self.0)),
        }
    }
}

impl Splice {
    /// The directory of its control group as a word of the shell, which finds out where the hierarchy is mounted.
    pub fn shell_path(&self) -> String {
        format!("$(findmnt -fnt cgroup2 -o TARGET)/hostgap/{}", quoted(&self.node))
    }
}

/// A command that cannot enter a namespace by itself.
pub(crate) fn inside(place: &Place, command: &str) -> String {
    match place {
        Place::Host => command.to_owned(),
        Place::Netns(name) => format!("ip netns exec {name} {command}"),
        Place::Path(path) => format!("nsenter --net={} {command}", quoted(path.as_str())),
    }
}

/// A place where `ip` wants a namespace: its name, or the shell's own process for the host's namespace, which need
/// not be that of process 1.
pub(crate) fn netns_operand(place: &Place) -> String {
    match place {
        Place::Host => "$$".to_owned(),
        Place::Netns(name) => name.to_string(),
        Place::Path(path) => quoted(path.as_str()),
    }
}

/// Writes a file of the namespace's /sys.
pub(crate) fn echo_at(place: &Place, value: &str, path: &str) -> String {
    let script = format!("echo {value} > {}", quoted(path));
    match place {
        Place::Host => script,
        // The redirection must happen inside, where `ip netns exec` has mounted the namespace's own /sys.
        Place::Netns(_) => inside(place, &format!("sh -c {}", quoted(&script))),
        Place::Path(_) => {
            let script = format!("mount -t sysfs sysfs /sys && {script}");
            inside(place, &format!("unshare --mount sh -c {}", quoted(&script)))
        }
    }
}

/// A command of hostgap's own: nothing else knows its programs. It enters the namespace by itself, since a mount that
/// is made under `ip netns exec` is seen by no other process.
pub(crate) fn ours(place: &Place, verb: &str, node: &str, arguments: &str) -> String {
    let netns = match place {
        Place::Host => String::new(),
        Place::Netns(_) | Place::Path(_) => format!(" --netns {}", netns_operand(place)),
    };
    format!("hostgap bpf {verb}{netns} {} {arguments}", quoted(node))
}

pub(crate) fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A link's name as one word of the shell: the kernel allows `$`, quotes and the like in it.
pub(crate) fn word(name: &IfName) -> String {
    quoted(name.as_str())
}

/// The text as one word of a POSIX shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_word(text: &str, expected: &str) {
        assert_eq!(quoted(text), expected);
    }

    #[test]
    fn words_are_quoted_only_where_the_shell_needs_it() {
        check_word("flannel.1", "flannel.1");
        check_word("net.ipv4.ip_forward=1", "net.ipv4.ip_forward=1");
        check_word("4096 87380", "'4096 87380'");
        check_word("$(id)", "'$(id)'");
        check_word("it's", r"'it'\''s'");
        check_word("", "''");
    }
}

//! Conflicts: running programs, and files read at the next start, that set the same knobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use linux::Files;
use linux::sysctl::Configured;
use serde::Serialize;
use tune::Lives;

use crate::Change;

/// The file of kernel parameters that [`crate::KeptFiles`] writes. The last name over all directories wins, so an
/// administrator's 99-… takes precedence.
pub(crate) const KEPT_SYSCTL: &str = "etc/sysctl.d/90-hostgap.conf";

/// A program or file that sets the same knobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Conflict {
    /// A program or a file.
    pub who: String,
    pub knobs: Vec<String>,
    /// What it does to them, and what to do about it.
    pub what: String,
}

/// A program: its name in `/proc/*/comm`, the knobs it sets, and what to do about it.
struct Manager {
    name: &'static str,
    sets: fn(&Change) -> bool,
    what: &'static str,
}

const MANAGERS: &[Manager] = &[
    Manager {
        name: "irqbalance",
        sets: |change| change.wanted.setting.lives == Lives::Interrupts,
        what: "moves interrupts every ten seconds; ban those of the card there (--banirq)",
    },
    Manager {
        name: "tuned",
        sets: |change| !matches!(change.wanted.setting.lives, Lives::Route(_)),
        what: "applies its own profile when it starts or changes profile; put the settings into its profile",
    },
    Manager {
        name: "NetworkManager",
        sets: |change| is_of_link(change),
        what: "sets links and routes again when a connection comes up; put the setting into the connection",
    },
    Manager {
        name: "systemd-network",
        sets: |change| is_of_link(change),
        what: "sets links and routes again when a link comes up; put the setting into its .link or .network file",
    },
    Manager {
        name: "kubelet",
        sets: |change| matches!(change.wanted.setting.lives, Lives::Sysctl(_)),
        what: "pods have namespaces of their own, which this does not reach; a pod's sysctls are in its securityContext",
    },
    Manager {
        name: "kube-proxy",
        sets: |change| change.wanted.setting.knob.id.starts_with("nf_conntrack"),
        what: "sets the limits of connection tracking by its own configuration when it starts",
    },
    Manager {
        name: "dockerd",
        sets: |change| matches!(change.wanted.setting.lives, Lives::Sysctl(_)),
        what: "containers have namespaces of their own, which this does not reach; docker run --sysctl sets theirs",
    },
];

fn is_of_link(change: &Change) -> bool {
    matches!(change.wanted.setting.lives, Lives::Mtu | Lives::RootQdisc | Lives::Route(_) | Lives::Nic(_))
}

/// All programs and files that set one of the changed knobs, on the machine below `root`.
pub(crate) fn conflicts(root: &Path, changes: &[Change]) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let running = running(&root.join("proc"));
    for manager in MANAGERS.iter().filter(|manager| running.iter().any(|name| name == manager.name)) {
        let knobs = names(changes.iter().filter(|change| (manager.sets)(change)));
        if !knobs.is_empty() {
            let (who, what) = (manager.name.to_owned(), manager.what.to_owned());
            conflicts.push(Conflict { who, knobs, what });
        }
    }
    conflicts.extend(files(root, changes));
    conflicts
}

/// The files that set parameters at the start, except ours.
fn files(root: &Path, changes: &[Change]) -> Vec<Conflict> {
    // An unreadable file is no reason to refuse a plan.
    let configured = Configured::read(&Files::at(root)).unwrap_or_default();
    let mut by_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let is_other = |file: &&str| Path::new(file).file_name() != Path::new(KEPT_SYSCTL).file_name();
    for change in changes {
        let (Lives::Sysctl(key) | Lives::Machine(key)) = change.wanted.setting.lives else { continue };
        let files: BTreeSet<&str> = configured.of(key).into_iter().map(|line| line.file.as_str()).collect();
        for file in files.into_iter().filter(is_other) {
            by_file.entry(file).or_default().push(change.wanted.setting.knob.id.to_owned());
        }
    }
    let what = "sets it again at every start";
    let conflict = |(file, knobs): (&str, _)| {
        let who = root.join(file.trim_start_matches('/')).display().to_string();
        Conflict { who, knobs, what: what.to_owned() }
    };
    by_file.into_iter().map(conflict).collect()
}

fn names<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<String> {
    changes.map(|change| change.wanted.setting.knob.id.to_owned()).collect()
}

/// The names of all processes.
fn running(proc: &Path) -> Vec<String> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    pids.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use record::RequestedValue;
    use tune::{Setting, WantedSetting};

    use super::*;

    fn change(knob: &str, value: &str) -> Change {
        let setting = Setting::named(knob, &RequestedValue::Text(value.to_owned())).expect("a sound setting");
        Change {
            wanted: WantedSetting { setting, at_least: false, route: None, why: String::new() },
            steps: Vec::new(),
            held: None,
        }
    }

    #[test]
    fn programs_and_files_are_named_with_what_they_set() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        };
        write("proc/17/comm", "irqbalance\n");
        write("proc/18/comm", "bash\n");
        write("etc/sysctl.d/60-old.conf", "# old\nnet.core.somaxconn = 128\n-net/ipv4/tcp_sack=1\n");
        write("etc/sysctl.d/61-other.conf", "vm.swappiness = 1\n");
        let changes = [change("irq_affinity", "0-1"), change("somaxconn", "4096"), change("tcp_dsack", "0")];
        let found = conflicts(root.path(), &changes);
        let named: Vec<_> = found.iter().map(|one| (one.who.clone(), one.knobs.join(" "))).collect();
        let file = root.path().join("etc/sysctl.d/60-old.conf").display().to_string();
        assert_eq!(
            named,
            [("irqbalance".to_owned(), "irq_affinity".to_owned()), (file, "somaxconn".to_owned())]
        );
    }
}

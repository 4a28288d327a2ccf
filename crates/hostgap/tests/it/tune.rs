//! `hostgap tune` in a namespace: applying, confirming, rolling back and keeping, while processes die or
//! files are damaged.

mod again;
mod boot;
mod cards;
mod damaged;
mod death;
mod found;
mod input;
mod kept;
mod login;
mod machine;
mod requested;
mod standing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linux::Netns;
use serde_json::{Map, Value};
use testkit::{Dump, World, dump, require_root, shell};

use crate::sandbox::{HOSTGAP, json, until};

/// A namespace with a link and routes over it, and a store.
struct Ground {
    world: World,
    directory: tempfile::TempDir,
}

impl Ground {
    /// `None`, with the skip recorded, without root.
    fn new() -> Option<Ground> {
        if !require_root() {
            return None;
        }
        let world = World::new();
        let (home, away) = (world.name("home"), world.name("away"));
        shell(&format!("ip netns add {home}; ip netns add {away}; ip -n {home} link set lo up"));
        let ground = Ground { world, directory: tempfile::tempdir().unwrap() };
        ground.lay_wire();
        Some(ground)
    }

    /// Makes the link, its addresses and the routes over it.
    fn lay_wire(&self) {
        let (home, away) = (self.world.name("home"), self.world.name("away"));
        shell(&format!(
            "ip -n {home} link add wire0 address 02:00:00:00:00:01 numrxqueues 2 numtxqueues 2 type veth \
 peer name wire0 address 02:00:00:00:00:02 numrxqueues 2 numtxqueues 2 netns {away}
ip -n {away} link set wire0 up
ip -n {home} link set wire0 up
ip -n {home} address add 192.0.2.1/24 dev wire0
ip -n {home} address add 2001:db8::1/64 dev wire0 nodad
ip -n {home} route add default via 192.0.2.2 mtu lock 1400
ip -n {home} -6 route add default via 2001:db8::2"
        ));
    }

    fn netns(&self) -> Netns {
        self.world.open("home")
    }

    fn dump(&self) -> Dump {
        dump(&self.netns())
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Writes a file beside the store.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Changes the store's record of the active tuning, with a valid checksum as hostgap would write it.
    fn write_standing(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let path = self.state().join("standing.json");
        let mut object: Map<String, Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        object.remove("crc32").unwrap();
        change(&mut object);
        let sum = crc32fast::hash(&serde_json::to_vec(&object).unwrap());
        object.insert("crc32".to_owned(), sum.into());
        std::fs::write(&path, serde_json::to_vec(&object).unwrap()).unwrap();
    }

    /// A subcommand that uses the store.
    fn command(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(HOSTGAP);
        command.args(["tune", verb, "--state"]).arg(self.state()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn tune(&self, verb: &str, arguments: &[&str]) -> Output {
        self.command(verb, arguments).output().unwrap()
    }

    /// `apply` in the namespace.
    fn apply(&self, arguments: &[&str]) -> Output {
        let name = self.world.name("home");
        self.tune("apply", &[&["--netns", name.as_str()], arguments].concat())
    }

    /// A subcommand that looks at the namespace and needs no store.
    fn look(&self, verb: &str, arguments: &[&str]) -> Output {
        let name = self.world.name("home");
        let mut command = Command::new(HOSTGAP);
        command.args(["tune", verb, "--netns", name.as_str()]).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn status(&self) -> Value {
        json(&self.tune("status", &["--json"]))
    }

    fn phase(&self) -> Option<String> {
        self.status()["standing"]["phase"].as_str().map(str::to_owned)
    }

    #[track_caller]
    fn until_nothing_stands(&self) {
        until("nothing stands", || !self.state().join("standing.json").exists());
    }

    /// A parameter of the namespace.
    fn sysctl(&self, key: &str) -> String {
        let key = linux::sysctl::Key::new(key).unwrap();
        self.netns().run(|| linux::sysctl::read(&key)).unwrap().unwrap().unwrap()
    }

    /// Sets a parameter as another program would.
    fn set_sysctl(&self, key: &str, value: &str) {
        let key = linux::sysctl::Key::new(key).unwrap();
        self.netns().run(|| linux::sysctl::write(&key, value)).unwrap().unwrap();
    }

    /// The process that watches the store.
    fn watcher(&self) -> Option<u32> {
        processes_of(&self.state()).into_iter().next()
    }

    /// Whether no process watches the store and none holds the watcher's lock. A watcher that is ending keeps
    /// the lock longer than its command line.
    fn is_unwatched(&self) -> bool {
        self.watcher().is_none() && !plan::Store::at(self.state()).is_watched()
    }
}

impl Drop for Ground {
    /// A failed test leaves no watcher behind.
    fn drop(&mut self) {
        for pid in processes_of(&self.state()) {
            crate::sandbox::kill(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The watchers of a store, found by their command line. A child that was just forked to become one still has
/// its parent's.
fn processes_of(state: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let wanted = format!("--state\0{}\0", state.display());
    pids.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&wanted))
    })
    .collect()
}

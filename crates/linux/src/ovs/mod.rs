//! A private Open vSwitch: its two daemons in one network namespace, and their database, sockets and logs in a
//! directory of their own. None of the machine's own Open vSwitch is read or changed: its daemons have other
//! sockets and another namespace.

mod af_xdp;
mod database;
mod dpdk;
mod version;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::af_xdp::find_af_xdp;
pub use self::database::{Database, FoundInterface, NewBridge, NewPort};
pub use self::dpdk::{Dpdk, find_dpdk};
use crate::daemon::{self, Daemons};
use crate::error::Attempt;
use crate::process::Spawn;
use crate::{Error, Netns, Result, folder, program};

/// Where the directories of switches are. It goes with the last of them.
const TOP: &str = "/run/hostgap-ovs";
/// How long a daemon may take until it serves: on an emulated machine it takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 3] = [TOOL, SERVER, SWITCH];
const TOOL: &str = "ovsdb-tool";
const SERVER: &str = "ovsdb-server";
const SWITCH: &str = "ovs-vswitchd";
/// The same with DPDK, which Debian has beside it.
const SWITCH_DPDK: &str = "ovs-vswitchd-dpdk";
/// The beginning of the argument by which a daemon is known.
const MARK: &str = "--pidfile=";
/// The variable by which libxdp puts its program at a link by itself. Else it puts another one before it, which lets
/// several programs share a link, and pins that in the machine's bpffs, where it would stay.
const NO_DISPATCHER: &str = "LIBXDP_SKIP_DISPATCHER";

/// The name of the datapath in the kernel. A namespace has one, which belongs to the daemon that made it.
pub const DATAPATH: &str = "ovs-system";
/// The name of the link that stands for a datapath in user space. A namespace has one, which outlives the daemon.
pub const USER_DATAPATH: &str = "ovs-netdev";

/// A private Open vSwitch, which may run or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    dir: PathBuf,
}

/// Whether the programs of a switch are installed that forwards in the kernel; else which is not, and what has it, or
/// which version is too old.
pub fn find_programs() -> std::result::Result<(), String> {
    find_version(version::SYSTEM).map(drop)
}

/// The daemon of the programs, if it does what is asked of that version.
fn find_version(least: version::Least) -> std::result::Result<PathBuf, String> {
    PROGRAMS.iter().try_for_each(|name| find(name).map(drop))?;
    let program = find(SWITCH)?;
    least.check(&program).map(|()| program)
}

/// The names of all switches that have a directory.
///
/// # Errors
/// The directories cannot be listed.
pub fn switches() -> Result<Vec<String>> {
    folder::names(Path::new(TOP))
}

impl Switch {
    /// That of a name, which is a single part of a path.
    pub fn named(name: &str) -> Switch {
        Switch { dir: Path::new(TOP).join(name) }
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it has a directory.
    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Starts both daemons in a namespace, with an empty database; the one that forwards with DPDK, if that is said,
    /// and at rest ([`Database::rest`]). Returns when they serve. The daemons live on when this process ends.
    ///
    /// # Errors
    /// Its directory exists, a program is not installed, or a daemon does not start; with its own words.
    pub fn start(&self, netns: &Netns, dpdk: Option<&Dpdk>) -> Result<()> {
        folder::create(&self.dir).attempt(|| format!("create {}", self.dir.display()))?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&self.dir, private).attempt(|| format!("protect {}", self.dir.display()))?;
        self.run(TOOL, vec!["create".to_owned(), self.file("conf.db")], netns)?;
        self.run(SERVER, self.server_args(), netns)?;
        self.database()?.begin(&self.settings(dpdk))?;
        self.run(if dpdk.is_some() { SWITCH_DPDK } else { SWITCH }, self.switch_args(), netns)
    }

    /// Whether both daemons run.
    pub fn is_alive(&self) -> bool {
        let is_alive =
            |name: &&str| daemon::is_alive(&self.dir.join(format!("{name}.pid")), &self.mark(name));
        [SERVER, SWITCH].iter().all(is_alive)
    }

    /// Ends the daemons, and waits for their end. Packets go on by the kernel's flows. None is no error.
    pub fn end(&self) -> Result<()> {
        Daemons::with(format!("{MARK}{}/", self.dir.display())).end()
    }

    /// Removes its directory. None is no error.
    pub fn remove(&self) -> Result<()> {
        folder::remove(&self.dir)
    }

    /// Its database, to be read and changed.
    ///
    /// # Errors
    /// It is not served.
    pub fn database(&self) -> Result<Database> {
        Database::open(&self.dir)
    }

    /// What a person would type to start it; `inside` makes a command one of the namespace.
    pub fn commands(&self, dpdk: Option<&Dpdk>, inside: impl Fn(&str) -> String) -> Vec<String> {
        let dir = self.dir.display();
        let typed = |program: &str, args: &[String]| format!("OVS_RUNDIR={dir} {program} {}", args.join(" "));
        let env = |command: String| inside(&format!("env {command}"));
        let set =
            self.settings(dpdk).into_iter().map(|(key, value)| format!(" other_config:{key}='\"{value}\"'"));
        let set: String = set.collect();
        let set = if set.is_empty() { set } else { format!(" -- set Open_vSwitch .{set}") };
        let (program, files) = match dpdk {
            None => (SWITCH, String::new()),
            Some(_) => (SWITCH_DPDK, format!("{}={dir} ", dpdk::DIRECTORY)),
        };
        vec![
            format!("mkdir -p -m 700 {dir}"),
            format!("{TOOL} create {}", self.file("conf.db")),
            env(typed(SERVER, &self.server_args())),
            format!("ovs-vsctl --db={} --no-wait init{set}", self.remote()),
            env(format!("{NO_DISPATCHER}=1 {files}{}", typed(program, &self.switch_args()))),
        ]
    }

    /// The settings of its database, for which the name of its directory is one that no other switch has.
    fn settings(&self, dpdk: Option<&Dpdk>) -> BTreeMap<&'static str, String> {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        dpdk.map_or_else(BTreeMap::new, |dpdk| dpdk.settings(&name))
    }

    /// Where the database is served, in the form of its programs.
    pub fn remote(&self) -> String {
        format!("unix:{}", self.file(database::SOCKET))
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn server_args(&self) -> Vec<String> {
        let remote = format!("--remote=p{}", self.remote());
        [self.daemon_args(SERVER), vec![remote, self.file("conf.db")]].concat()
    }

    fn switch_args(&self) -> Vec<String> {
        [self.daemon_args(SWITCH), vec![self.remote()]].concat()
    }

    /// The argument that a daemon of it has, and no other process.
    fn mark(&self, name: &str) -> String {
        format!("{MARK}{}", self.file(&format!("{name}.pid")))
    }

    /// In the background once it serves, with all files in the directory, and nothing in the machine's log.
    fn daemon_args(&self, name: &str) -> Vec<String> {
        vec![
            "--detach".to_owned(),
            "--no-chdir".to_owned(),
            self.mark(name),
            format!("--unixctl={}", self.file(&format!("{name}.ctl"))),
            format!("--log-file={}", self.file(&format!("{name}.log"))),
            "-vsyslog:off".to_owned(),
            "-vconsole:warn".to_owned(),
        ]
    }

    /// Runs a program to its end; that of a daemon is the start of it.
    fn run(&self, name: &str, args: Vec<String>, netns: &Netns) -> Result<()> {
        let attempted = || format!("start {name} in {}", netns.describe());
        let program = find(name).map_err(|why| Error::new(attempted(), io::Error::other(why)))?;
        let log = self.dir.join(format!("{name}.start"));
        let dir = self.dir.display().to_string();
        let dirs = ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR", dpdk::DIRECTORY];
        let dirs = dirs.iter().map(|name| ((*name).to_owned(), dir.clone()));
        let mut child = Spawn {
            args,
            env: dirs.chain([(NO_DISPATCHER.to_owned(), "1".to_owned())]).collect(),
            netns: Some(netns.try_clone()?),
            log: Some(log.clone()),
            ..Spawn::new(program)
        }
        .start()?;
        let why = match child.wait_for(PATIENCE)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => format!("it ended ({status})"),
            None => format!("it does not serve within {} s", PATIENCE.as_secs()),
        };
        let said = fs::read_to_string(&log).unwrap_or_default();
        let said = said.lines().last().map_or(String::new(), |line| format!(": {line}"));
        Err(Error::new(attempted(), io::Error::other(format!("{why}{said}"))))
    }
}

/// The program of a name.
fn find(name: &str) -> std::result::Result<PathBuf, String> {
    let package = if name == SWITCH_DPDK { "openvswitch-switch-dpdk" } else { "openvswitch-switch" };
    program::find(name, package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_to_the_directory() {
        let switch = Switch::named("hg-x-n1-1");
        let commands = switch.commands(None, |command| format!("ip netns exec n1 {command}"));
        assert_eq!(commands[0], "mkdir -p -m 700 /run/hostgap-ovs/hg-x-n1-1");
        assert!(
            commands[2]
                .starts_with("ip netns exec n1 env OVS_RUNDIR=/run/hostgap-ovs/hg-x-n1-1 ovsdb-server ")
        );
        for command in &commands {
            assert!(command.contains("/run/hostgap-ovs/hg-x-n1-1"), "{command}");
            assert!(!command.contains("/var/") && !command.contains("/etc/"), "{command}");
        }
    }

    #[test]
    fn a_daemon_with_dpdk_is_told_before_it_starts_and_keeps_to_the_directory_too() {
        let switch = Switch::named("hg-x-n1-1");
        let dpdk = Dpdk { poll_cpus: "1".parse().unwrap() };
        let commands = switch.commands(Some(&dpdk), str::to_owned);
        assert!(
            commands[3].contains("--no-wait init -- set Open_vSwitch . ")
                && commands[3].contains("dpdk-init")
        );
        assert!(commands[4].contains("RUNTIME_DIRECTORY=/run/hostgap-ovs/hg-x-n1-1 "), "{}", commands[4]);
        assert!(commands[4].contains(" ovs-vswitchd-dpdk --detach "), "{}", commands[4]);
    }
}

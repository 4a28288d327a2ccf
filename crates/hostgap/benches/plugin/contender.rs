//! The plugins that are compared: this program's, those of the CNI project, and the kernel alone.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linux::netlink::Netlink;
use linux::{IfName, Link, LinkKind, NetnsPath, NetnsRef, VethPeer};
use serde_json::{Value, json};

use crate::Failure;
use crate::scene::WIRE;

/// Our plugin as cargo builds it for a benchmark, with shared libraries.
const BUILT: &str = env!("CARGO_BIN_EXE_hostgap-cni");
/// Names another build of it, as that of a release, which needs none.
const OURS: &str = "HOSTGAP_PLUGIN";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Status,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Status => "STATUS",
        }
    }
}

/// A row of the table.
pub(crate) struct Contender {
    pub(crate) name: String,
    how: How,
}

enum How {
    /// A program that does nothing is started, and a pair of links made or ended.
    Kernel,
    Plugin {
        program: PathBuf,
        conf: String,
    },
}

/// The kernel alone first. Plugins that are not there are left out, and that is said. All are called as copies in
/// `dir`, as who installs a plugin copies it: a file that was just linked is mapped in smaller pieces, and its program
/// begins up to half a millisecond later.
pub(crate) fn all(dir: &Path) -> Result<Vec<Contender>, Failure> {
    let mut all = vec![Contender { name: "/bin/true and a pair of links".into(), how: How::Kernel }];
    let built: PathBuf = std::env::var_os(OURS).unwrap_or_else(|| BUILT.into()).into();
    println!("hostgap-cni is {}", built.display());
    let program = copied(&built, dir)?;
    let ours = |name: &str, network: &str, more: Value| {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": network, "type": "hostgap", "attach": "ptp", "wire": WIRE,
            "masquerade": true, "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.9.0.0/16" }]] },
        });
        merge(&mut conf, more);
        Contender { name: name.into(), how: How::Plugin { program: program.clone(), conf: conf.to_string() } }
    };
    all.push(ours("hostgap-cni ptp, masquerade", "a", json!({})));
    all.push(ours("the same again", "a", json!({})));
    all.push(ours("the same without anti_spoofing", "b", json!({ "anti_spoofing": false })));
    let bare = json!({ "anti_spoofing": false, "masquerade": false });
    all.push(ours("the same without either", "e", bare));
    all.push(ours("the same with anti_spoofing at tcx", "d", json!({ "anti_spoofing": "tcx" })));
    all.push(ours("hostgap-cni bridge, masquerade", "c", json!({ "attach": "bridge" })));
    let directories = std::env::var_os("CNI_PATH").unwrap_or_else(|| "/usr/lib/cni:/opt/cni/bin".into());
    let directories: Vec<PathBuf> = std::env::split_paths(&directories).collect();
    let find = |plugin: &str| directories.iter().map(|dir| dir.join(plugin)).find(|path| path.is_file());
    // Which the others call for addresses.
    find("host-local").map(|program| copied(&program, dir)).transpose()?;
    for (name, plugin, more) in [
        ("ptp", "ptp", json!({})),
        ("ptp, ipMasq", "ptp", json!({ "ipMasq": true })),
        ("bridge", "bridge", json!({ "isGateway": true, "bridge": "peer0" })),
        ("bridge, ipMasq", "bridge", json!({ "isGateway": true, "bridge": "peer1", "ipMasq": true })),
        ("macvlan", "macvlan", json!({ "master": WIRE })),
    ] {
        let Some(program) = find(plugin) else {
            println!("without the CNI project's {name}: {plugin} is not in {}", shown(&directories));
            continue;
        };
        let program = copied(&program, dir)?;
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": name.replace(", ", "-"), "type": plugin,
            "ipam": { "type": "host-local", "subnet": "10.8.0.0/16" },
        });
        merge(&mut conf, more);
        all.push(Contender {
            name: format!("CNI project's {name}"),
            how: How::Plugin { program, conf: conf.to_string() },
        });
    }
    // Networks and bridges stand before the first ADD that counts.
    for contender in &all {
        contender.time(Verb::Add, 0)?;
        contender.time(Verb::Del, 0)?;
    }
    Ok(all)
}

fn copied(program: &Path, dir: &Path) -> Result<PathBuf, Failure> {
    let copy = dir.join(program.file_name().ok_or("a program has a name")?);
    if !copy.exists() {
        std::fs::copy(program, &copy).map_err(|error| format!("copy {}: {error}", program.display()))?;
    }
    Ok(copy)
}

fn shown(directories: &[PathBuf]) -> String {
    directories.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(" or ")
}

fn merge(conf: &mut Value, more: Value) {
    if let (Value::Object(conf), Value::Object(more)) = (conf, more) {
        conf.extend(more);
    }
}

impl Contender {
    /// Whether it answers STATUS, which came with version 1.1.0 of the specification.
    pub(crate) fn has_status(&self) -> bool {
        match &self.how {
            How::Kernel => true,
            How::Plugin { conf, .. } => conf.contains(r#""cniVersion":"1.1.0""#),
        }
    }

    /// How long a call takes, from its start to its end.
    pub(crate) fn time(&self, verb: Verb, pod: usize) -> Result<Duration, Failure> {
        match &self.how {
            How::Kernel => of_kernel(verb, pod),
            How::Plugin { program, conf } => {
                of_plugin(program, conf, verb, pod).map_err(|why| format!("{}: {why}", self.name).into())
            }
        }
    }
}

fn of_plugin(program: &Path, conf: &str, verb: Verb, pod: usize) -> Result<Duration, Failure> {
    let mut command = Command::new(program);
    command.env("CNI_COMMAND", verb.name()).env("CNI_IFNAME", "eth0");
    command.env("CNI_CONTAINERID", format!("p{pod}")).env("CNI_NETNS", format!("/run/netns/p{pod}"));
    command.env("CNI_PATH", program.parent().unwrap_or(program));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(conf.as_bytes())?;
    let output = child.wait_with_output()?;
    let time = start.elapsed();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stdout).into_owned().into());
    }
    Ok(time)
}

fn of_kernel(verb: Verb, pod: usize) -> Result<Duration, Failure> {
    let netlink = Netlink::open()?;
    let name = IfName::new(format!("pair{pod}"))?;
    let netns = Some(NetnsRef::Path(NetnsPath::new(format!("/run/netns/p{pod}"))?));
    let peer = VethPeer { name: IfName::new("eth0")?, netns, mtu: None, mac: None };
    let pair = Link { name, kind: LinkKind::Veth { peer }, mtu: None, mac: None };
    let start = Instant::now();
    if verb != Verb::Del {
        Command::new("/bin/true").status()?;
    }
    match verb {
        Verb::Add => netlink.link_add(&pair)?,
        Verb::Del => netlink.link_del(netlink.index_of(&pair.name)?)?,
        Verb::Status => {}
    }
    Ok(start.elapsed())
}

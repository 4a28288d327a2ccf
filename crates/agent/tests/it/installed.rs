//! What an agent gives container runtimes, and gives them again when another program takes it away.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use agent::Settings;
use agent::source::file::FileSource;
use agent::status::Status;
use node::install::RuntimeDirs;
use testkit::require_root;

use crate::keep::{A, B, HOST_GW};
use crate::nodes::{Agent, Nodes};

#[test]
fn what_runtimes_need_comes_back() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    nodes.write_leases(HOST_GW, &[A, B]);
    let at = |name: &str| nodes.directory.path().join(name);
    let dirs = RuntimeDirs { bin: at("runtime/bin"), conf: at("runtime/net.d") };
    let (conflist, program) = (dirs.conf.join("10-pods.conflist"), dirs.bin.join("hostgap"));
    let settings = Settings { runtime: Some(dirs), ..nodes.settings("a") };
    let file = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let agent = Agent::start(nodes.world.open("a"), settings, nodes.home("a"), file);
    let text = fs::read_to_string(&conflist).unwrap();
    let bytes = fs::metadata(&program).unwrap().len();

    // That of another network, as a plugin leaves it that the node had before.
    let other = at("runtime/net.d/05-other.conflist");
    fs::write(&other, "{}").unwrap();
    nodes.at("ip -n A address add 192.0.2.99/32 dev wire");
    let is_behind = |status: &Status| {
        let says = "05-other.conflist comes before 10-pods.conflist by its name";
        status.runtimes.as_ref().is_some_and(|why| why.contains(says))
    };
    agent.until("it names the other one", is_behind);
    fs::remove_file(&other).unwrap();
    nodes.at("ip -n A address del 192.0.2.99/32 dev wire");
    agent.until("it is the first", |status| status.runtimes.is_none());

    let harms: [(&str, &dyn Fn()); 5] = [
        ("10-pods.conflist was gone", &|| fs::remove_file(&conflist).unwrap()),
        ("bin/hostgap was gone", &|| fs::remove_file(&program).unwrap()),
        ("10-pods.conflist was another one", &|| {
            fs::write(&conflist, text.replace("ptp", "bridge")).unwrap();
        }),
        ("bin/hostgap was another program", &|| {
            fs::write(&program, &fs::read(&program).unwrap()[..usize::try_from(bytes - 1).unwrap()]).unwrap();
        }),
        ("bin/hostgap was gone; ", &|| {
            // Both in one stroke: a look may come at any time.
            fs::rename(at("runtime"), at("away")).unwrap();
        }),
    ];
    for (repairs, (says, harm)) in (1..).zip(harms) {
        harm();
        // Nothing says that a file went. A look is ten seconds away, or as soon as an address comes.
        nodes.at(&format!("ip -n A address add 192.0.2.10{repairs}/32 dev wire"));
        let status = agent.until(says, |status| status.repairs_total == repairs);
        let last = status.repairs.last().unwrap();
        assert!(last.what.contains(says) && status.undecided.is_none(), "{status:?}");
        assert_eq!(fs::read_to_string(&conflist).unwrap(), text);
        let found = fs::metadata(&program).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (bytes, 0o755), "{says}");
    }
}

/// The file says of one network that its ways are there.
#[test]
fn two_networks_of_a_node_have_an_environment_file_each() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    nodes.write_leases(HOST_GW, &[A, B]);
    let _pods = nodes.start("a");
    let written = fs::read_to_string(nodes.settings("a").subnet_env).unwrap();
    let path = nodes.directory.path().join("storage.toml");
    let leases = fs::read_to_string(nodes.leases()).unwrap();
    fs::write(&path, leases.replace("10.244.", "10.245.").replace("fd00:244:", "fd00:245:")).unwrap();
    let source = || FileSource { path: path.clone(), node: "a".to_owned() };
    let storage = || Settings { network: "storage".to_owned(), ..nodes.settings("a") };
    let (netns, home) = (|| nodes.world.open("a"), || nodes.home("a"));
    let (agent, _ready) = Agent::begin(netns(), storage(), home(), source());
    let says = "subnet.env: it is that of the network pods on this node; --subnet-file names another one";
    agent.until("it leaves the other's file alone", |status| {
        status.undecided.as_ref().is_some_and(|why| why.contains(says))
    });
    assert_eq!(fs::read_to_string(nodes.settings("a").subnet_env).unwrap(), written);
    drop(agent);
    let subnet_env = nodes.directory.path().join("a/storage.env");
    let _storage = Agent::start(netns(), Settings { subnet_env, ..storage() }, home(), source());
}

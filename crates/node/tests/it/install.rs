//! The plugin into a runtime's directories and out of them, beside others' files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use linux::IfName;
use linux::features::{Facts, Feature};
use node::install::{
    Change, InstallError, Installation, Installed, LeftProgram, OtherSubnets, RuntimeDirs, Uninstalled,
    install_cli, uninstall,
};
use node::{Configured, Network, SenderCheck};
use serde_json::Value;

use crate::scene::{Scene, address};

/// A node with the directories of a runtime.
struct Host {
    scene: Scene,
    root: tempfile::TempDir,
}

#[derive(Clone, Copy)]
enum Act {
    Preview,
    Install,
}

impl Host {
    fn new() -> Option<Host> {
        Scene::new().map(|scene| Host { scene, root: tempfile::tempdir().unwrap() })
    }

    fn dirs(&self) -> RuntimeDirs {
        RuntimeDirs {
            bin: self.root.path().join("opt/cni/bin"),
            conf: self.root.path().join("etc/cni/net.d"),
        }
    }

    fn conf(&self, name: &str) -> PathBuf {
        self.dirs().conf.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.dirs().conf).unwrap();
        fs::write(self.conf(name), text).unwrap();
    }

    /// The test's own program stands for ours: it has the same code.
    fn act(
        &self,
        act: Act,
        network: &Network,
        file: Option<&str>,
        facts: &Facts,
    ) -> Result<Installed, InstallError> {
        self.act_with(act, OtherSubnets::Refused, network, file, facts)
    }

    fn act_with(
        &self,
        act: Act,
        other_subnets: OtherSubnets,
        network: &Network,
        file: Option<&str>,
        facts: &Facts,
    ) -> Result<Installed, InstallError> {
        let (home, dirs) = (self.scene.home(), self.dirs());
        let program = "/proc/self/exe".into();
        let installation =
            Installation { home: &home, facts, dirs: &dirs, network, other_subnets, file, program };
        let act = || match act {
            Act::Preview => installation.preview(),
            Act::Install => installation.install(),
        };
        self.scene.world.open("node").run(act).unwrap()
    }

    fn install_as(&self, network: &Network, file: Option<&str>) -> Result<Installed, InstallError> {
        self.act(Act::Install, network, file, &Facts::default())
    }

    /// As an agent does it.
    fn install_beside(&self, network: &Network) -> Result<Installed, InstallError> {
        self.act_with(Act::Install, OtherSubnets::Awaited, network, None, &Facts::default())
    }

    /// What the plugin gets of an installed configuration, as a runtime derives it.
    fn conf_of(installed: &Installed) -> Value {
        let list: Value = serde_json::from_str(&installed.text).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["name"] = list["name"].clone();
        conf["cniVersion"] = "1.1.0".into();
        conf
    }

    fn install(&self, network: &Network) -> Result<Installed, InstallError> {
        self.install_as(network, None)
    }

    fn uninstall(&self, name: Option<&str>) -> Uninstalled {
        let (home, dirs) = (self.scene.home(), self.dirs());
        self.scene.world.open("node").run(|| uninstall(&home, &dirs, name)).unwrap().unwrap()
    }

    /// All files in both directories.
    fn files(&self) -> Vec<PathBuf> {
        let dirs = self.dirs();
        let below =
            |dir: &PathBuf| fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = below(&dirs.bin).chain(below(&dirs.conf)).collect();
        files.sort();
        files
    }

    #[track_caller]
    fn refused(&self, network: &Network, file: Option<&str>, says: &str) {
        let before = self.files();
        let error = self.install_as(network, file).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(self.files(), before, "{says}: nothing is written");
    }
}

fn network(attach: &str) -> Network {
    Network {
        name: "pods".to_owned(),
        attach: attach.to_owned(),
        subnets: vec!["10.244.1.0/24".parse().unwrap(), "fd00:244:0:1::/64".parse().unwrap()],
        prefixes: vec![],
        wire: None,
        mtu: None,
        masquerade: false,
        anti_spoofing: None,
        host_link: false,
        readiness_file: None,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// On a node whose agent is in a container it is the only program to look at the node by, and it goes with the plugin.
#[test]
fn the_program_of_all_commands_comes_and_goes_with_the_plugin() {
    let Some(host) = Host::new() else { return };
    host.install(&network("ptp")).unwrap();
    let cli = host.dirs().bin.join("hostgap-cli");
    fs::write(&cli, "a script of this node").unwrap();
    let refused = install_cli(&host.scene.home(), &host.dirs()).unwrap_err().to_string();
    assert!(refused.contains("hostgap-cli: it is another program"), "{refused}");
    assert_eq!(host.uninstall(None).left, None);
    assert_eq!(host.files(), std::slice::from_ref(&cli));
    fs::remove_file(&cli).unwrap();
    host.install(&network("ptp")).unwrap();
    assert_eq!(install_cli(&host.scene.home(), &host.dirs()).unwrap(), Change::Written);
    assert_eq!(install_cli(&host.scene.home(), &host.dirs()).unwrap(), Change::Unchanged);
    assert_eq!(mode(&cli), 0o755);
    assert_eq!((host.uninstall(None).left, host.files()), (None, vec![]));
}

/// Every user can read a runtime's directories, and so lock them for as long as it likes.
#[test]
fn nobody_else_keeps_the_plugin_from_being_installed() {
    let Some(host) = Host::new() else { return };
    host.install(&network("ptp")).unwrap();
    let dirs = host.dirs();
    let locked = [&dirs.bin, &dirs.conf].map(|path| {
        let directory = fs::File::open(path).unwrap();
        directory.lock_shared().unwrap();
        directory
    });
    let _ = host.uninstall(None);
    host.install(&network("ptp")).unwrap();
    install_cli(&host.scene.home(), &dirs).unwrap();
    drop(locked);
}

/// A copy of a program that is written just now would be none that a runtime can start.
#[test]
fn half_a_program_is_not_installed() {
    let Some(host) = Host::new() else { return };
    let (home, dirs) = (host.scene.home(), host.dirs());
    let half = host.root.path().join("half");
    // All but its last byte.
    let whole = fs::read("/proc/self/exe").unwrap();
    fs::write(&half, &whole[..whole.len() - 1]).unwrap();
    let (network, facts) = (network("ptp"), Facts::default());
    let installation = Installation {
        home: &home,
        facts: &facts,
        dirs: &dirs,
        network: &network,
        other_subnets: OtherSubnets::Refused,
        file: None,
        program: half,
    };
    let refused = host.scene.world.open("node").run(|| installation.install()).unwrap().unwrap_err();
    assert!(matches!(refused, InstallError::NotWhole(_)), "{refused}");
    assert_eq!(host.files(), Vec::<PathBuf>::new());
}

#[test]
fn the_same_again_changes_nothing() {
    let Some(host) = Host::new() else { return };
    let changes = |installed: &Installed| (installed.program.1, installed.conflist.1);
    let preview = host.act(Act::Preview, &network("ptp"), None, &Facts::default());
    assert_eq!((changes(&preview.unwrap()), host.files()), ((Change::Written, Change::Written), vec![]));
    let first = host.install(&network("ptp")).unwrap();
    assert_eq!((changes(&first), first.before.len()), ((Change::Written, Change::Written), 0));
    let (program, conflist) = (&first.program.0, &first.conflist.0);
    assert_eq!((mode(program), mode(conflist)), (0o755, 0o644));
    assert_eq!(fs::read(program).unwrap(), fs::read("/proc/self/exe").unwrap());
    assert_eq!(host.files(), [conflist.clone(), program.clone()]);
    assert_eq!(changes(&host.install(&network("ptp")).unwrap()), (Change::Unchanged, Change::Unchanged));
    // Another build of the program, and another configuration.
    fs::write(program, [fs::read(program).unwrap(), b"\0".to_vec()].concat()).unwrap();
    let upgraded = host.install(&network("bridge")).unwrap();
    assert_eq!(changes(&upgraded), (Change::Replaced, Change::Replaced));
    assert_eq!(Configured::read(&fs::read_to_string(conflist).unwrap()).unwrap()[0].path().name, "bridge");
    // The content is right and the mode is not: no runtime could start it.
    fs::set_permissions(program, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(host.install(&network("bridge")).unwrap().program.1, Change::Replaced);
    assert_eq!(mode(program), 0o755);
}

#[test]
fn files_of_others_are_left_alone() {
    let Some(host) = Host::new() else { return };
    let other = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"}]}"#;
    host.write("10-pods.conflist", other);
    host.refused(&network("ptp"), None, "10-pods.conflist: it is not a configuration of hostgap's plugin");
    host.write("10-pods.conflist", "no JSON");
    host.refused(&network("ptp"), None, "it is not a configuration of hostgap's plugin");
    fs::create_dir_all(host.dirs().bin).unwrap();
    fs::copy("/bin/sh", host.dirs().bin.join("hostgap")).unwrap();
    host.refused(&network("ptp"), Some("20-pods.conflist"), "bin/hostgap: it is another program");
    host.uninstall(None);
    assert_eq!(host.files().len(), 2);
    assert_eq!(host.uninstall(None).left, Some(LeftProgram::Foreign));
}

#[test]
fn a_network_is_configured_once() {
    let Some(host) = Host::new() else { return };
    host.install(&network("ptp")).unwrap();
    host.refused(&network("ptp"), Some("20-pods.conflist"), "configure network pods again: ");
    let web = Network { name: "web".to_owned(), ..network("bridge") };
    host.refused(&web, Some("10-pods.conflist"), "10-pods.conflist: it configures network pods");
    for name in ["pods.json", "../10-pods.conflist", ".10-pods.conflist", "pods"] {
        host.refused(&web, Some(name), "ends in .conflist is expected");
    }
    host.write("00-first.conf", r#"{"cniVersion":"1.0.0","name":"other","type":"ptp"}"#);
    host.write("99-last.conf", "{}");
    let installed = host.install(&web).unwrap();
    assert_eq!(installed.before, [host.conf("00-first.conf"), host.conf("10-pods.conflist")]);
}

#[test]
fn what_the_node_cannot_have_is_refused() {
    let Some(host) = Host::new() else { return };
    let with = |change: &dyn Fn(&mut Network)| {
        let mut network = network("ptp");
        change(&mut network);
        network
    };
    for (network, says) in [
        (
            with(&|network| network.subnets = vec!["10.244.1.9/24".parse().unwrap()]),
            "the network is 10.244.1.0/24",
        ),
        (with(&|network| network.subnets = vec!["10.244.1.0/31".parse().unwrap()]), "too small"),
        (with(&|network| network.prefixes = vec!["10.9.0.0/16".parse().unwrap()]), "10.244.1.0/24"),
        (with(&|network| network.wire = Some("nolink".parse().unwrap())), "there is no link nolink"),
        (with(&|network| network.mtu = Some(9000)), "9000"),
        (Network { masquerade: true, ..network("macvlan") }, "`masquerade` is true"),
        (with(&|network| network.attach = "docker".to_owned()), "`attach` is \"docker\""),
        (with(&|network| network.name = "a/b".to_owned()), "`name`"),
    ] {
        host.refused(&network, None, says);
    }
    let missing = [(Feature::Netkit, "unknown device type".to_owned())].into();
    let facts = Facts { kernel: "6.1".to_owned(), missing };
    let unmet = host.act(Act::Install, &network("netkit"), None, &facts);
    let unmet = unmet.unwrap_err();
    assert!(unmet.to_string().starts_with("run attach netkit here: "), "{unmet}");
    assert!(unmet.to_string().contains("unknown device type") && unmet.remedy().is_some());
    assert_eq!(host.files(), Vec::<PathBuf>::new());
}

#[test]
fn a_kernel_without_programs_has_a_network_without_the_check() {
    let Some(host) = Host::new() else { return };
    let missing = [(Feature::BpfTc, "invalid argument".to_owned())].into();
    let facts = Facts { kernel: "4.19".to_owned(), missing };
    let unmet = host.act(Act::Install, &network("ptp"), None, &facts).unwrap_err();
    assert!(unmet.to_string().starts_with("check here that containers send"), "{unmet}");
    assert!(unmet.to_string().contains("invalid argument"), "{unmet}");
    assert!(unmet.remedy().unwrap().contains("--no-anti-spoofing"));
    let unchecked = Network { anti_spoofing: Some(SenderCheck::Off), ..network("ptp") };
    let installed = host.act(Act::Install, &unchecked, None, &facts).unwrap();
    assert!(installed.text.contains("\"anti_spoofing\": false"), "{}", installed.text);
}

#[test]
fn the_program_stays_for_a_container_that_is_attached() {
    let Some(host) = Host::new() else { return };
    let conf = Host::conf_of(&host.install(&network("ptp")).unwrap());
    for name in ["a", "b"] {
        let _ = host.scene.container(name);
        host.scene.add(name, &conf);
    }
    // Another configuration under the same name would be refused at the next ADD.
    host.refused(
        &network("bridge"),
        None,
        "stands on this node with another configuration, and 2 attachments",
    );
    assert_eq!(host.install(&network("ptp")).unwrap().conflist.1, Change::Unchanged);
    host.scene.succeed("DEL", "b", &conf);
    let removed = host.uninstall(None);
    assert_eq!((removed.conflists.len(), &removed.left), (1, &Some(LeftProgram::Attached)));
    let attached: Vec<_> =
        removed.attachments.iter().map(|one| (&*one.container_id, &*one.ifname, &*one.network)).collect();
    assert_eq!(attached, [("a", "eth0", "pods")]);
    assert_eq!(host.files(), std::slice::from_ref(&removed.program));
    host.scene.assert_reaches("a", "192.0.2.1");
    host.scene.assert_reaches("a", "2001:db8::1");
    host.scene.succeed("DEL", "a", &conf);
    let removed = host.uninstall(None);
    assert_eq!((removed.left, removed.networks.removed), (None, vec!["pods".to_owned()]));
    assert_eq!(host.files(), Vec::<PathBuf>::new());
    let again = host.uninstall(None);
    assert_eq!((again.left, again.program_was_there, again.conflists.len()), (None, false, 0));
}

/// An agent's node has got another prefix: what it writes has that one, though a container stands with an
/// address of the old.
#[test]
fn other_subnets_may_be_installed_while_a_container_stands() {
    let Some(host) = Host::new() else { return };
    let conf = Host::conf_of(&host.install(&network("bridge")).unwrap());
    let _ = host.scene.container("a");
    host.scene.add("a", &conf);
    let subnets = ["10.244.7.0/24", "fd00:244:0:7::/64"].map(|subnet| subnet.parse().unwrap()).into();
    let other = Network { subnets, ..network("bridge") };
    let says = "1 attachments rest on it; it is made anew for 10.244.7.0/24 and fd00:244:0:7::/64 when";
    host.refused(&other, None, says);
    let installed = host.install_beside(&other).unwrap();
    assert!(installed.waits.as_ref().is_some_and(|why| why.contains(says)), "{:?}", installed.waits);
    let (new, _) = (Host::conf_of(&installed), host.scene.container("b"));
    host.scene.fail("ADD", "b", &new, 7, says);
    // Nothing else may differ.
    let refused = host.install_beside(&Network { masquerade: true, ..other.clone() }).unwrap_err();
    assert!(refused.to_string().contains("with another configuration"), "{refused}");
    host.scene.succeed("DEL", "a", &new);
    assert_eq!(host.install_beside(&other).unwrap().waits, None);
    assert!(address(&host.scene.add("b", &new), 0).starts_with("10.244.7."));
}

/// The wire of an agent's node has got another MTU, or the network another backend.
#[test]
fn another_mtu_waits_while_a_container_shares_what_has_the_old_one() {
    let Some(host) = Host::new() else { return };
    let of = |attach: &str, mtu| Network { mtu: Some(mtu), ..network(attach) };
    let beside_on = |network: Network, is_wire_named| {
        let home = host.scene.home();
        host.scene.world.open("node").run(|| network.beside_attached(&home, is_wire_named)).unwrap()
    };
    let beside = |network| beside_on(network, true);
    assert_eq!(beside(of("bridge", 1500)), of("bridge", 1500));
    let conf = Host::conf_of(&host.install_beside(&of("bridge", 1500)).unwrap());
    let _ = (host.scene.container("a"), host.scene.container("b"));
    host.scene.add("a", &conf);
    let waits = host.install_beside(&of("bridge", 1400)).unwrap().waits.unwrap();
    let says = "for an MTU of 1500 bytes, and 1 attachments rest on it; it is made anew for an MTU of 1400 bytes when";
    assert!(waits.contains(says), "{waits}");
    host.refused(&of("bridge", 1400), None, says);
    assert_eq!(beside(of("bridge", 1400)), of("bridge", 1500));
    // With another prefix, too, which is awaited.
    let subnets = ["10.244.7.0/24", "fd00:244:0:7::/64"].map(|subnet| subnet.parse().unwrap());
    let moved = |mtu| Network { subnets: subnets.to_vec(), ..of("bridge", mtu) };
    assert_eq!(beside(moved(1400)), moved(1500));
    // A bridge is the same on another link.
    let elsewhere = |mtu| Network { wire: Some(IfName::new("lo").unwrap()), ..of("bridge", mtu) };
    for is_wire_named in [true, false] {
        assert_eq!(beside_on(elsewhere(1400), is_wire_named), elsewhere(1500));
    }
    // What differs besides is not followed with either.
    let other = |mtu| Network { masquerade: true, ..of("bridge", mtu) };
    assert_eq!(beside(other(1400)), other(1400));
    let conf = Host::conf_of(&host.install_beside(&beside(of("bridge", 1400))).unwrap());
    host.scene.add("b", &conf);
    for container in ["a", "b"] {
        host.scene.succeed("DEL", container, &conf);
    }
    assert_eq!(beside(of("bridge", 1400)), of("bridge", 1400));
    // Those of ptp share nothing that has an MTU.
    let conf = Host::conf_of(&host.install_beside(&of("ptp", 1500)).unwrap());
    host.scene.add("a", &conf);
    assert_eq!(beside(of("ptp", 1400)), of("ptp", 1400));
}

/// A link that the user has named is not given up, and one that the agent has found is.
#[test]
fn containers_that_hang_on_a_link_keep_those_that_come_there() {
    let Some(host) = Host::new() else { return };
    let on = |wire: Option<&str>| Network {
        wire: wire.map(|wire| IfName::new(wire).unwrap()),
        ..network("macvlan")
    };
    let conf = Host::conf_of(&host.install(&on(None)).unwrap());
    let _ = host.scene.container("a");
    host.scene.add("a", &conf);
    let beside = |is_wire_named| {
        let home = host.scene.home();
        let node = host.scene.world.open("node");
        node.run(|| on(Some("lo")).beside_attached(&home, is_wire_named)).unwrap()
    };
    assert_eq!([beside(true), beside(false)], [on(Some("lo")), on(None)]);
}

#[test]
fn the_program_stays_for_another_network() {
    let Some(host) = Host::new() else { return };
    host.install(&network("ptp")).unwrap();
    host.install(&Network { name: "web".to_owned(), ..network("bridge") }).unwrap();
    // Someone's chain, in a version that we do not speak: it still needs the program.
    host.write(
        "30-chain.conflist",
        r#"{"cniVersion":"9.0.0","name":"chain","plugins":[{"type":"x"},{"type":"hostgap"}]}"#,
    );
    let removed = host.uninstall(Some("pods"));
    assert_eq!(removed.conflists, [host.conf("10-pods.conflist")]);
    let needed_by = vec![host.conf("10-web.conflist"), host.conf("30-chain.conflist")];
    assert_eq!(removed.left, Some(LeftProgram::Configured(needed_by)));
    // It is called by another plugin's name, too.
    let link = host.dirs().bin.join("bridge");
    std::os::unix::fs::symlink("hostgap", &link).unwrap();
    assert_eq!(host.uninstall(None).left, Some(LeftProgram::Linked(vec![link.clone()])));
    fs::remove_file(link).unwrap();
    assert_eq!(host.uninstall(None).left, None);
    assert_eq!(host.files(), Vec::<PathBuf>::new());
}

/// Each configuration of the manual is one that the plugin reads and that a node can have, and each attach has one.
#[test]
fn the_manual_has_a_configuration_for_each_attach() {
    let page = include_str!("../../../../docs/cni-plugin.md");
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let configured: Vec<Configured> = blocks.flat_map(|block| Configured::read(block).unwrap()).collect();
    let attaches: Vec<&str> = configured.iter().map(|conf| conf.path().name).collect();
    let all: Vec<&str> = datapath::ATTACHES.iter().map(|path| path.name).collect();
    assert!(attaches.starts_with(&all), "{attaches:?}");
    let Some(scene) = Scene::new() else { return };
    for conf in configured {
        let checked = scene.world.open("node").run(|| conf.check(&scene.home())).unwrap();
        assert_eq!(checked, Ok(()), "{}", conf.path().name);
    }
}

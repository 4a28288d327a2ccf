//! `hostgap tune keep`: the namespace and a root directory of its own stand for a machine.

use std::process::{Command, Output, Stdio};

use super::Ground;
use crate::sandbox::{HOSTGAP, check, stdout};

/// Runs hostgap as on a host: the namespace is that of the process.
fn inside(ground: &Ground, verb: &str, arguments: &[&str]) -> Output {
    ground.netns().run(|| tuning(ground, verb, arguments).output()).unwrap().unwrap()
}

fn tuning(ground: &Ground, verb: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(HOSTGAP);
    command.args(["tune", verb, "--state"]).arg(ground.state()).args(arguments).stdin(Stdio::null());
    command
}

#[test]
fn what_is_kept_is_made_again_at_the_next_start() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let root = ground.directory.path().join("root");
    let at_root = ["--root", root.to_str().unwrap()];
    check(&inside(&ground, "keep", &at_root), 2, "there is no tuning to keep");
    let set = [
        "--set",
        "somaxconn=8192",
        "--set",
        "tcp_congestion_control=reno",
        "--set",
        "initcwnd=20",
        "--set",
        "mtu=1400",
    ];
    check(&inside(&ground, "apply", &set), 0, "");
    check(&inside(&ground, "keep", &at_root), 2, "is not confirmed");
    check(&inside(&ground, "confirm", &["--same-login"]), 0, "");
    let kept = inside(&ground, "keep", &at_root);
    check(&kept, 0, "");
    assert!(stdout(&kept).contains("is applied again at every start"), "{}", stdout(&kept));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let parameters = read("etc/sysctl.d/90-hostgap.conf");
    assert!(parameters.contains("net.core.somaxconn = 8192\n"), "{parameters}");
    assert!(
        parameters.contains("net.ipv4.tcp_congestion_control = reno\n") && !parameters.contains("initcwnd")
    );
    let unit = read("etc/systemd/system/hostgap-tune@.service");
    assert!(unit.contains("BindsTo=sys-subsystem-net-devices-%i.device"), "{unit}");
    let wants = "etc/systemd/system/sys-subsystem-net-devices-wire0.device.wants/hostgap-tune@wire0.service";
    let target = std::fs::read_link(root.join(wants)).unwrap();
    assert_eq!(target.to_str(), Some("/etc/systemd/system/hostgap-tune@.service"));

    // The next boot: no setting is made, and the unit's command runs.
    check(&inside(&ground, "rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "before the next start");
    let profile = root.join("etc/hostgap/tune.toml");
    let command = ["--confirmed", "--dev", "wire0", profile.to_str().unwrap()];
    check(&inside(&ground, "apply", &command), 0, "");
    assert_eq!(ground.sysctl("net/core/somaxconn"), "8192");
    assert_eq!(ground.phase().as_deref(), Some("confirmed"));
    // The link is deleted and created again while the tuning is active.
    let home = ground.world.name("home");
    testkit::shell(&format!("ip -n {home} link set wire0 mtu 1500"));
    check(&inside(&ground, "apply", &command), 0, "");
    let link = testkit::shell(&format!("ip -n {home} link show wire0"));
    assert!(link.contains("mtu 1400"), "{link}");

    // A file that is read later wins. hostgap says so.
    std::fs::write(root.join("etc/sysctl.d/99-admin.conf"), "net.core.somaxconn = 100\n").unwrap();
    let again = inside(&ground, "keep", &at_root);
    assert_eq!(again.status.code(), Some(3));
    assert!(crate::sandbox::stderr(&again).contains("99-admin.conf also sets net.core.somaxconn"));
    let mut unheard = tuning(&ground, "keep", &at_root);
    let unheard = ground.netns().run(|| unheard.stdout(crate::sandbox::unheard()).output()).unwrap().unwrap();
    assert_eq!((unheard.status.code(), &unheard.stderr), (Some(3), &again.stderr), "whoever hears of it");
    let forgotten = stdout(&inside(&ground, "keep", &["--forget", at_root[0], at_root[1]]));
    assert!(forgotten.contains("files removed"), "{forgotten}");
    assert!(!root.join(wants).exists() && !profile.exists());
    assert!(root.join("etc/sysctl.d/99-admin.conf").exists(), "what is not ours stays");
    check(&inside(&ground, "rollback", &[]), 0, "");
}

/// A minimum is not pinned to its value, a setting of one route stays with that route, and nothing of an
/// earlier `keep` is left.
#[test]
fn what_is_kept_is_what_was_wanted() {
    let Some(ground) = Ground::new() else { return };
    let root = ground.directory.path().join("root");
    let keep = ["--root", root.to_str().unwrap()];
    let parameters = root.join("etc/sysctl.d/90-hostgap.conf");
    let first = ["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"];
    check(&inside(&ground, "apply", &first), 0, "");
    check(&inside(&ground, "confirm", &["--same-login"]), 0, "");
    check(&inside(&ground, "keep", &keep), 0, "");
    assert!(std::fs::read_to_string(&parameters).unwrap().contains("net.core.somaxconn = 8192"));
    check(&inside(&ground, "rollback", &[]), 0, "");

    let profile = ground.write(
        "least.toml",
        "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"tcp_wmem\"\nvalue = \"4096 16384 8388608\"\nat_least = true\n\
         [[set]]\nknob = \"rto_min\"\nvalue = 10\nroute = \"192.0.2.0/24\"\n",
    );
    check(&inside(&ground, "apply", &[&profile]), 0, "");
    check(&inside(&ground, "confirm", &["--same-login"]), 0, "");
    check(&inside(&ground, "keep", &keep), 0, "");
    assert!(!parameters.exists(), "{:?}", std::fs::read_to_string(&parameters));
    let kept = std::fs::read_to_string(root.join("etc/hostgap/tune.toml")).unwrap();
    assert!(kept.contains("at_least = true") && kept.contains("route = \"192.0.2.0/24\""), "{kept}");
    check(&inside(&ground, "rollback", &[]), 0, "");
    let kept = root.join("etc/hostgap/tune.toml");
    check(&inside(&ground, "apply", &["--confirmed", "--dev", "wire0", kept.to_str().unwrap()]), 0, "");
    check(&inside(&ground, "rollback", &[]), 0, "");
}

/// At boot the routes come after the link, for instance by DHCP.
#[test]
fn what_is_set_at_routes_waits_for_them() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    testkit::shell(&format!(
        "ip -n {home} address flush dev wire0; ip -n {home} route flush dev wire0; ip -n {home} -6 route flush dev wire0"
    ));
    let waiting =
        ["--confirmed", "--wait", "60s", "--dev", "wire0", "--netns", home.as_str(), "--set", "initcwnd=20"];
    let mut child = ground.command("apply", &waiting).spawn().unwrap();
    // It must not give up while no route is there, and one that comes later than another is waited for too: only
    // time can show both.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    testkit::shell(&format!(
        "ip -n {home} address add 192.0.2.1/24 dev wire0; sleep 0.5; ip -n {home} route add default via 192.0.2.2"
    ));
    check(&child.wait_with_output().unwrap(), 0, "");
    let steps = ground.status()["standing"]["steps"].clone();
    assert_eq!(
        steps.as_array().map(Vec::len),
        Some(2),
        "the link's own prefix and the default route: {steps}"
    );
    check(&ground.tune("rollback", &[]), 0, "");
    // `apply` does not wait for what it does not need. When the wait is over, it says what is missing.
    testkit::shell(&format!("ip -n {home} address flush dev wire0"));
    check(&ground.apply(&["--wait", "60s", "--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    let late = ["--wait", "300ms", "--dev", "wire0", "--set", "initcwnd=20"];
    check(&ground.apply(&late), 2, "no route leads over wire0");
}

/// Without a link there is no unit. A parameter needs none: the file is read at boot.
#[test]
fn what_no_unit_sets_is_said() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    testkit::shell(&format!("ip -n {home} link del wire0"));
    let root = ground.directory.path().join("root");
    let keep = ["--root", root.to_str().unwrap()];
    check(&inside(&ground, "apply", &["--set", "somaxconn=8192", "--set", "notrack=8080"]), 0, "");
    check(&inside(&ground, "confirm", &["--same-login"]), 0, "");
    let kept = inside(&ground, "keep", &keep);
    assert_eq!(kept.status.code(), Some(3));
    let warned = String::from_utf8_lossy(&kept.stderr).into_owned();
    assert!(warned.contains("notrack is not kept") && !warned.contains("somaxconn is not kept"), "{warned}");
    check(&inside(&ground, "rollback", &[]), 0, "");
}

#[test]
fn a_namespace_s_settings_cannot_be_kept() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    check(&ground.tune("keep", &["--root", "/nowhere"]), 2, "does not survive a restart");
    check(&ground.tune("rollback", &[]), 0, "");
}

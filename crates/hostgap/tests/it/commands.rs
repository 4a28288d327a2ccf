//! `--show-commands`: a shell that runs its output builds what a race builds.

use std::path::Path;
use std::process::{Child, Command};

use datapath::Family;
use linux::features::Feature;

use crate::paths::runnable;
use crate::sandbox::{HOSTGAP, Sandbox, check, sandbox, stdout, text, until};

#[test]
fn shown_commands_build_every_path_by_hand() {
    let sandbox = sandbox();
    for path in runnable() {
        if path.needs().contains(&Feature::Netkit) && !knows_netkit() {
            // The iproute2 of Debian 12 is older than netkit. All other commands of this path occur in other
            // paths too.
            println!("{}: this iproute2 cannot make netkit links", path.name);
            continue;
        }
        let needs = path.needs();
        if needs.contains(&Feature::WireGuard) || needs.contains(&Feature::IpSec) {
            // They name files of keys that no node has.
            println!("{}: its keys are not shown", path.name);
            continue;
        }
        for (family, arguments) in [(Family::V4, &[][..]), (Family::V6, &["--ipv6"])] {
            if path.attach.refuses_callers(family).is_some() {
                continue;
            }
            by_hand(&sandbox, path.name, &["--paths", path.name], arguments);
        }
    }
}

#[test]
fn shown_calls_of_plugins_build_by_hand_too() {
    let sandbox = sandbox();
    let facts = linux::features::probe().unwrap();
    // A single plugin, and a chain of two.
    for name in ["ptp", "bridge"] {
        let file = crate::cni::scenario(name);
        if let Some(unmet) = facts.unmet(&::lab::Configuration::read(&file).unwrap().needs()).first() {
            testkit::skip(&format!("{name}: {unmet}"));
            continue;
        }
        by_hand(&sandbox, &format!("cni:{name}"), &["--cni", file.to_str().unwrap()], &[]);
        assert!(!Path::new("/var/lib/cni/networks").join(name).exists());
    }
}

/// Every value of a sweep is a candidate. Candidates from the command line are swept like those from the
/// file.
#[test]
fn a_sweep_shows_each_of_its_candidates() {
    let sandbox = sandbox();
    let file = sandbox.out().join("sweep.toml");
    let sweep = "sweep = { over = \"to_client.loss\", values = [\"1%\", \"4%\"] }";
    std::fs::write(&file, format!("schema = 1\nname = \"x\"\n{sweep}\n[[candidates]]\npath = \"macvlan\"\n"))
        .unwrap();
    let file = file.to_str().unwrap();
    let shown = sandbox.hostgap(&["race", "--show-commands", file, "--paths", "docker"]);
    check(&shown, 0, "");
    let shown = stdout(&shown);
    assert_eq!(stdout(&sandbox.hostgap(&["race", "--dry-run", file, "--paths", "docker"])), shown);
    for (name, loss) in [("docker 1 %", "loss 1%"), ("docker 4 %", "loss 4%")] {
        let part = shown.split_once(&format!("# {name}: ")).unwrap().1.split("\n\n# ").next().unwrap();
        assert!(part.contains(loss), "{part}");
    }
    assert!(!shown.contains("macvlan"));
    std::fs::write(file, format!("schema = 1\nname = \"x\"\n{sweep}\n")).unwrap();
    let refused = sandbox.hostgap(&["race", "--show-commands", file]);
    check(
        &refused,
        2,
        "line 3, column 18: `sweep.over` is to_client.loss: every candidate races at every value",
    );
}

#[expect(clippy::print_stdout, reason = "the output of a test that fails is shown")]
fn by_hand(sandbox: &Sandbox, path: &str, asked: &[&str], family: &[&str]) {
    let args = [&["race", "--show-commands"], asked, family].concat();
    let shown = sandbox.hostgap(&args);
    check(&shown, 0, "");
    // The reference is always among the candidates. Each candidate's commands begin with its name.
    let shown = stdout(&shown);
    let begin = shown.find(&format!("# {path}: ")).unwrap();
    let shown = shown[begin..].split("\n\n# ").next().unwrap();

    text(shell(sandbox).args(["-e", "-c", shown]));
    assert!(!sandbox.namespaces().is_empty());
    let mut server = serve(sandbox, comment(shown, "serve:"));
    let ask = comment(shown, "ask:");
    let (mut body, mut ended_with) = (String::new(), None);
    until(&format!("the server of {path} {family:?} answers"), || {
        let ended = server.try_wait().unwrap();
        assert_eq!(ended, None, "the server of {path} {family:?} has ended");
        let output = sandbox.command("sh").args(["-c", &format!("{ask} --max-time 5")]).output().unwrap();
        body = stdout(&output);
        // Shown if the test fails: refused, unreachable and without an answer are not the same fault.
        if ended_with != output.status.code() {
            println!("{path} {family:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            ended_with = output.status.code();
        }
        output.status.success()
    });
    assert_eq!(body.len(), 100, "{path} {family:?}");
    server.kill().unwrap();
    server.wait().unwrap();
    text(shell(sandbox).args(["-e", "-c", comment(shown, "remove:")]));
    sandbox.assert_nothing_left();
}

/// A shell that finds the binary under test in PATH, as it would find an installed one.
fn shell(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command("sh");
    let folder = Path::new(HOSTGAP).parent().unwrap().display();
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    command
}

fn knows_netkit() -> bool {
    let help = Command::new("ip").args(["link", "help"]).output().unwrap();
    String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains("netkit")
}

fn serve(sandbox: &Sandbox, line: &str) -> Child {
    let mut command = shell(sandbox);
    command.args(["-c", &format!("exec {line}")]).spawn().unwrap()
}

/// The rest of the comment that begins with `what`.
fn comment<'a>(shown: &'a str, what: &str) -> &'a str {
    let mut lines = shown.lines().filter_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
    lines.next().unwrap().trim()
}

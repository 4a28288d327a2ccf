//! `--show-commands`: a shell that runs them builds what a race builds.

use std::process::{Child, Command};

use crate::turn::{HOSTGAP, Turn, check, stdout, text, turn, until};

#[test]
fn shown_commands_build_every_path_by_hand() {
    let turn = turn();
    let facts = linux::features::probe().unwrap();
    for path in datapath::ALL {
        if let Some(unmet) = path.unmet(&facts).first() {
            testkit::skip(&format!("{}: {unmet}", path.name));
            continue;
        }
        for family in [&[][..], &["--ipv6"]] {
            by_hand(&turn, path.name, &["--paths", path.name], family);
        }
    }
}

#[test]
fn shown_calls_of_plugins_build_by_hand_too() {
    let turn = turn();
    let facts = linux::features::probe().unwrap();
    // A single plugin, and a chain of two.
    for name in ["ptp", "bridge"] {
        let file = crate::cni::scenario(name);
        if let Some(unmet) = facts.unmet(&::lab::Conflist::read(&file).unwrap().needs()).first() {
            testkit::skip(&format!("{name}: {unmet}"));
            continue;
        }
        by_hand(&turn, &format!("cni:{name}"), &["--cni", file.to_str().unwrap()], &[]);
        assert!(!std::path::Path::new("/var/lib/cni/networks").join(name).exists());
    }
}

fn by_hand(turn: &Turn, path: &str, asked: &[&str], family: &[&str]) {
    let args = [&["race", "--show-commands"], asked, family].concat();
    let shown = turn.hostgap(&args);
    check(&shown, 0, "");
    // The reference is always among the candidates; each begins with its name.
    let shown = stdout(&shown);
    let begin = shown.find(&format!("# {path}: ")).unwrap();
    let shown = shown[begin..].split("\n\n# ").next().unwrap();

    text(turn.command("sh").args(["-e", "-c", shown]));
    assert!(!turn.namespaces().is_empty());
    let mut server = serve(turn, comment(shown, "serve:"));
    let ask = comment(shown, "ask:");
    let mut body = String::new();
    until("the server answers", || {
        let output = turn.command("sh").args(["-c", &format!("{ask} --max-time 5")]).output().unwrap();
        body = stdout(&output);
        output.status.success()
    });
    assert_eq!(body.len(), 100, "{path} {family:?}");
    server.kill().unwrap();
    server.wait().unwrap();
    text(turn.command("sh").args(["-e", "-c", comment(shown, "remove:")]));
    turn.assert_nothing_left();
}

fn serve(turn: &Turn, line: &str) -> Child {
    let line = line.replace(" hostgap ", &format!(" {HOSTGAP} "));
    let mut command: Command = turn.command("sh");
    command.args(["-c", &format!("exec {line}")]).spawn().unwrap()
}

/// The rest of the comment that begins so.
fn comment<'a>(shown: &'a str, what: &str) -> &'a str {
    let mut lines = shown.lines().filter_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
    lines.next().unwrap().trim()
}

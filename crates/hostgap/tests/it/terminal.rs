//! Drawing on terminals of several kinds.

use std::process::Output;

use crate::sandbox::{HOSTGAP, Sandbox, sandbox, stdout};

/// Runs the binary on a terminal of its own. `stdout` has what it wrote to either stream.
fn on_a_terminal(sandbox: &Sandbox, environment: &[(&str, &str)], args: &[&str]) -> Output {
    let line = std::iter::once(HOSTGAP).chain(args.iter().copied());
    let line: Vec<String> = line.map(|word| format!("'{word}'")).collect();
    let mut command = sandbox.command("script");
    command.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    command.env_remove("NO_COLOR").env_remove("TERM").envs(environment.iter().copied());
    command.output().unwrap()
}

fn race(sandbox: &Sandbox, environment: &[(&str, &str)]) -> Output {
    let out = sandbox.out().to_str().unwrap();
    let args = ["--paths", "macvlan", "--rounds", "1", "--rate", "1k", "--server", "hostgap", "--out", out];
    on_a_terminal(sandbox, environment, &[&["race"], &args[..]].concat())
}

const ESCAPE: char = '\u{1b}';

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let sandbox = sandbox();
    let text = stdout(&race(&sandbox, &[("TERM", "dumb")]));
    assert!(!text.contains(ESCAPE), "{text:?}");
    // These lines replace the bar.
    assert!(text.contains("round 1/1 done") && text.contains("Verdict: "), "{text}");

    let record = sandbox.record();
    let report = |environment: &[(&str, &str)]| {
        stdout(&on_a_terminal(&sandbox, environment, &["report", record.to_str().unwrap()]))
    };
    for plain in [&[("TERM", "dumb")][..], &[("TERM", "xterm"), ("NO_COLOR", "1")], &[]] {
        let text = report(plain);
        assert!(!text.contains(ESCAPE) && text.contains("Verdict: "), "{plain:?}: {text:?}");
    }
    for coloured in [&[("TERM", "xterm")][..], &[("TERM", "xterm"), ("NO_COLOR", "")]] {
        assert!(report(coloured).contains("\u{1b}[1mVerdict: "), "{coloured:?}");
    }
    for args in [&["--help"][..], &["race", "--help"], &["race", "--rate"], &["paths"]] {
        // A CI job is recognised by its environment, whatever its terminal.
        for environment in [&[("TERM", "dumb")][..], &[("TERM", "dumb"), ("CI", "true")]] {
            let text = stdout(&on_a_terminal(&sandbox, environment, args));
            assert!(!text.contains(ESCAPE) && !text.is_empty(), "{args:?}: {text:?}");
        }
    }
}

#[test]
fn a_terminal_gets_a_bar_and_colours() {
    let sandbox = sandbox();
    let text = stdout(&race(&sandbox, &[("TERM", "xterm")]));
    assert!(text.contains("\u{1b}[1mVerdict: ") && !text.contains("round 1/1 done\r\n"), "{text:?}");
    let without_colour = stdout(&race(&sandbox, &[("TERM", "xterm"), ("NO_COLOR", "1")]));
    assert!(without_colour.contains(ESCAPE), "a bar has no colour: {without_colour:?}");
    assert!(!without_colour.contains("\u{1b}[1m"), "{without_colour:?}");
}

//! Outside programs that check the project's work: `ip`, `bridge`, `tc`, `nft` and a shell.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use linux::Netns;

/// Runs a program in a namespace and returns its output.
///
/// # Panics
/// If it cannot be started or fails; the message gives the reason.
pub fn run(netns: &Netns, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = netns.run(|| command.output()).expect("tests may enter their own namespaces");
    check(&format!("{program} {}", arguments.join(" ")), output.expect("the program can be started"))
}

/// Like [`run`], with `input` on the program's standard input.
///
/// # Panics
/// As [`run`] does.
pub(crate) fn run_with_input(netns: &Netns, program: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = netns.run(|| feed(&mut command, input)).expect("tests may enter their own namespaces");
    check(&format!("{program} {}", arguments.join(" ")), output)
}

/// Feeds a script to `sh -e` in the calling thread's namespace, as if a user had pasted it.
///
/// # Panics
/// If one of its commands fails; the message names it.
pub fn shell(script: &str) -> String {
    check("sh", feed(Command::new("sh").args(["-e", "-x"]), script))
}

fn feed(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program can be started");
    let mut stdin = child.stdin.take().expect("asked for above");
    stdin.write_all(input.as_bytes()).expect("the program reads its input");
    drop(stdin);
    child.wait_with_output().expect("the program was started")
}

fn check(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} failed: {errors}");
    String::from_utf8(output.stdout).expect("these programs print UTF-8")
}

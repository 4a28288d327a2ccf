//! Outside programs that judge what the project did: `ip`, `bridge`, `tc`, `nft`, a shell.

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

/// Feeds a script to `sh -e` in the calling thread's namespace, as if a user had pasted it.
///
/// # Panics
/// If one of its commands fails; the message names it.
pub fn shell(script: &str) -> String {
    let mut child = Command::new("sh")
        .args(["-e", "-x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("every system has sh");
    let mut stdin = child.stdin.take().expect("asked for above");
    stdin.write_all(script.as_bytes()).expect("sh reads its script");
    drop(stdin);
    check("sh", child.wait_with_output().expect("sh was started"))
}

fn check(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} failed: {errors}");
    String::from_utf8(output.stdout).expect("these programs print UTF-8")
}

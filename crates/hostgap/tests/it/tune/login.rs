//! From where a tuning can be confirmed. The kernel distinguishes logins.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use testkit::skip;

use super::Ground;
use crate::sandbox::{HOSTGAP, check, stdout};

/// A subcommand in a new login, which begins as `pam_loginuid` does it. The subcommand starts after a word on
/// standard input.
fn login(ground: &Ground, verb: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-ec", "echo 0 > /proc/self/loginuid; echo is there; read word; exec \"$@\"", "sh"]);
    command.args([HOSTGAP, "tune", verb, "--state"]).arg(ground.state()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ground.netns().run(|| command.spawn()).unwrap().unwrap();
    let mut line = String::new();
    // The child writes nothing more before it gets the word, so the buffer takes nothing of the later output.
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "is there\n");
    child
}

fn go_on(mut child: Child) -> Output {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_login_that_was_there_before_does_not_confirm() {
    let Some(ground) = Ground::new() else { return };
    if !std::path::Path::new("/proc/self/sessionid").exists() {
        return skip("this kernel counts no logins (CONFIG_AUDIT)");
    }
    let before = ground.dump();
    let [earlier, console] = [&[][..], &["--same-login"]].map(|more| login(&ground, "confirm", more));
    let applied = go_on(login(&ground, "apply", &["--set", "somaxconn=8192"]));
    check(&applied, 0, "");
    assert!(stdout(&applied).contains("unless you run, from a new login"), "{}", stdout(&applied));
    check(&go_on(earlier), 2, "this login is older than tuning");
    assert_eq!(ground.phase().as_deref(), Some("unconfirmed"));
    check(&go_on(login(&ground, "confirm", &[])), 0, "");
    assert_eq!(ground.phase().as_deref(), Some("confirmed"));
    check(&go_on(login(&ground, "rollback", &[])), 0, "");

    check(&go_on(login(&ground, "apply", &["--set", "somaxconn=8192"])), 0, "");
    check(&go_on(console), 0, "");
    assert_eq!(ground.phase().as_deref(), Some("confirmed"));
    check(&go_on(login(&ground, "rollback", &[])), 0, "");
    before.assert_same(&ground.dump(), "after both");
}

/// A setting in a namespace cannot cut off a login.
#[test]
fn a_tuning_of_a_namespace_is_confirmed_from_anywhere() {
    let Some(ground) = Ground::new() else { return };
    if !std::path::Path::new("/proc/self/sessionid").exists() {
        return skip("this kernel counts no logins (CONFIG_AUDIT)");
    }
    let earlier = login(&ground, "confirm", &[]);
    let name = ground.world.name("home");
    check(&go_on(login(&ground, "apply", &["--netns", name.as_str(), "--set", "somaxconn=8192"])), 0, "");
    check(&go_on(earlier), 0, "");
    check(&go_on(login(&ground, "rollback", &[])), 0, "");
}

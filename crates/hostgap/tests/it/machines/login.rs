//! Machines that are reached and cannot be used as they are: no root there, or another processor.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Machines, assert_nothing_left, machines, three, visits};
use crate::sandbox::{check, check_race, json};

/// A user of the server's machine who is not root, as a line of `/etc/passwd`.
pub(super) const OPERATOR: &str = "ops:x:1234:1234::/:/bin/sh\n";

/// As sudo does it: nothing of the environment is kept, and who may not is told so. A user who is not root may where
/// the machine has [`AS_ROOT`].
pub(super) const SUDO: &str = "#!/bin/sh
[ \"$1 $2\" = '-n --' ] || exit 1
shift 2
[ \"$(id -u)\" = 0 ] && exec env -i PATH=\"$PATH\" \"$@\"
[ -x /run/as-root ] || { echo 'sudo: a password is required' >&2; exit 1; }
exec /run/as-root --reuid 0 --regid 0 --clear-groups env -i PATH=\"$PATH\" \"$@\"
";

/// Below the machine's own `/run`, where nobody else of this machine finds a program that makes its caller root.
const AS_ROOT: &str = "as-root";

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Machines {
    /// Lets `ops` log in on the server's machine, and keep a copy of the program there.
    fn let_the_operator_in(&self) {
        let dir = self.sandbox.out();
        // sshd reads the key with the user's rights.
        allow(dir, 0o711);
        let cache = dir.join("cache");
        std::fs::create_dir(&cache).unwrap();
        allow(&cache, 0o777);
    }

    /// Lets sudo make root of `ops`.
    fn let_the_operator_be_root(&self) {
        let setpriv =
            String::from_utf8(Command::new("which").arg("setpriv").output().unwrap().stdout).unwrap();
        let program = self.far.in_run(AS_ROOT);
        std::fs::copy(setpriv.trim(), &program).unwrap();
        allow(&program, 0o4755);
    }
}

#[test]
fn who_is_not_root_there_is_told_of_sudo_and_races_with_it() {
    let Some(three) = &three() else { return };
    let machines = &three.machines;
    machines.let_the_operator_in();
    let race = ["--server", "ssh://ops@b", "--paths", "ptp+direct", "--rounds", "1", "--json"];
    let with_sudo = [&race[..], &["--sudo"]].concat();
    let led = ["--client", "ssh://ops@a", "--server", "ssh://ops@b"];
    for (args, machine) in [(&race[..], "ssh://ops@b"), (&led, "ssh://ops@a")] {
        let says = format!(
            "use {machine}: change the network: this process lacks CAP_NET_ADMIN and CAP_SYS_ADMIN\n"
        );
        let said = check(&machines.output(args), 4, &says);
        assert!(
            said.contains("hint: log in as root (ssh://root@…), or have it started with --sudo\n"),
            "{said}"
        );
    }
    check(&machines.output(&with_sudo), 1, "use ssh://ops@b: sudo: a password is required");
    machines.let_the_operator_be_root();
    let output = machines.output(&with_sudo);
    check_race(&output, "connecting to ssh://ops@b");
    assert!(visits(&json(&output)["candidates"][2]) > 0, "{output:?}");
    assert_nothing_left(machines, &three.client);
}

#[test]
fn a_machine_with_another_processor_is_refused_before_anything_is_copied_there() {
    let Some(machines) = machines() else { return };
    let [script, calls] = ["ssh-to-aarch64", "calls"].map(|name| machines.sandbox.out().join(name));
    let text = format!("echo \"$*\" >>{}; echo welcome; echo Linux aarch64\n", calls.display());
    std::fs::write(&script, text).unwrap();
    let ssh = format!("sh {}", script.display());
    for arguments in [&["--server", "ssh://b"][..], &["--client", "ssh://a", "--server", "ssh://b"]] {
        let args = [&["race", "--ssh", &ssh], arguments].concat();
        let output = machines.hostgap(&args).output().unwrap();
        let here = format!("it is Linux aarch64, and this program is for Linux {}", std::env::consts::ARCH);
        check(&output, 4, &format!("use ssh://b: {here}"));
        assert_eq!(std::fs::read_to_string(&calls).unwrap().lines().count(), 1, "it was asked, and no more");
        std::fs::remove_file(&calls).unwrap();
    }
    machines.assert_as_before();
}

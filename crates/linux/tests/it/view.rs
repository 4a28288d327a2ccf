//! A program's private view: it writes only into its own directories, and the rest of the machine is
//! read-only.

use std::path::Path;
use std::slice;

use linux::process::{Spawn, kill_in};
use linux::view::{Own, View};

use crate::world::TestNetns;

/// Runs a script in the view and the namespace. Returns its exit code and output.
fn run(place: &TestNetns, view: &View, script: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let log = directory.path().join("log");
    let mut spawn = Spawn::new("sh");
    spawn.args = vec!["-c".to_owned(), script.to_owned()];
    spawn.netns = Some(place.netns.try_clone().expect("a descriptor can be duplicated"));
    spawn.new_pid_namespace = true;
    spawn.view = Some(view.clone());
    spawn.log = Some(log.clone());
    let code = spawn.start().expect("the shell starts").wait().expect("the shell ends").code();
    (code, std::fs::read_to_string(log).expect("the log is there"))
}

/// `/run` belongs to the program, apart from one name in it.
fn view(dir: &Path) -> View {
    let own = vec![Own::new("/run", dir.join("run"), &["lock"]), Own::new("/nonexistent", dir, &[])];
    View { own, ..View::default() }
}

#[test]
fn what_is_new_goes_elsewhere_and_is_found_again() {
    let place = TestNetns::new("view");
    let dir = tempfile::tempdir().unwrap();
    let name = format!("hgt-view-{}", std::process::id());
    let write = format!("echo kept >/run/{name}; mkdir /run/lock && echo own >/run/lock/file");
    assert_eq!(run(&place, &view(dir.path()), &write), (Some(0), String::new()));
    assert!(!Path::new("/run").join(&name).exists());
    assert_eq!(std::fs::read_to_string(dir.path().join("run/lock/file")).unwrap(), "own\n");
    let read = format!("cat /run/{name} /run/lock/file; test -e /run/netns/{}", place.name);
    assert_eq!(run(&place, &view(dir.path()), &read), (Some(0), "kept\nown\n".to_owned()));
}

#[test]
fn the_rest_of_the_machine_is_read_only() {
    let place = TestNetns::new("frozen");
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    for path in ["/etc/hgt-frozen", "/usr/hgt-frozen", "/run/netns/hgt-frozen", outside.to_str().unwrap()] {
        let (code, said) = run(&place, &view(&dir.path().join("own")), &format!("echo x >{path}"));
        assert_ne!(code, Some(0), "{path}");
        assert!(said.contains("Read-only file system"), "{path}: {said}");
        assert!(!Path::new(path).exists(), "{path}");
    }
    // The mounts of this process are unchanged.
    std::fs::write(&outside, "x").unwrap();
}

#[test]
fn what_the_machine_no_longer_has_is_not_shown() {
    let place = TestNetns::new("vanished");
    let machine = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(machine.path().join("folder")).unwrap();
    std::fs::write(machine.path().join("file"), "x").unwrap();
    std::os::unix::fs::symlink("/etc", machine.path().join("link")).unwrap();
    let view = View { own: vec![Own::new(machine.path(), dir.path(), &[])], ..View::default() };
    let list = format!("ls {} && cat {0}/file", machine.path().display());
    let expected = "file\nfolder\nlink\nx".to_owned();
    assert_eq!(run(&place, &view, &list), (Some(0), expected));
    std::fs::remove_dir(machine.path().join("folder")).unwrap();
    std::fs::remove_file(machine.path().join("file")).unwrap();
    let list = format!("ls {}", machine.path().display());
    assert_eq!(run(&place, &view, &list), (Some(0), "link\n".to_owned()));
}

/// One directory covers where the files of the next lie, which is mounted in it.
#[test]
fn a_directory_may_lie_where_another_is_mounted() {
    let place = TestNetns::new("nested");
    let machine = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (inner, kept) = (machine.path().join("inner"), machine.path().join("inner/kept"));
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    let own = vec![Own::new(machine.path(), dir.path(), &["inner"]), Own::new(&inner, &kept, &[])];
    let write = format!("ls {} && echo x >{0}/file", inner.display());
    assert_eq!(run(&place, &View { own, ..View::default() }, &write), (Some(0), String::new()));
    assert_eq!(std::fs::read_to_string(kept.join("file")).unwrap(), "x\n");
}

#[test]
fn links_and_processes_are_those_of_its_own_namespaces() {
    let place = TestNetns::new("own");
    place.add("hgt-only", linux::LinkKind::Bridge);
    let dir = tempfile::tempdir().unwrap();
    let script = "ls /sys/class/net; readlink /proc/$$/ns/net; echo $$; echo /proc/[0-9]*";
    let (code, said) = run(&place, &view(dir.path()), script);
    let inode = place.netns.inode().unwrap();
    assert_eq!((code, said), (Some(0), format!("hgt-only\nlo\nnet:[{inode}]\n1\n/proc/1\n")));
}

#[test]
fn what_it_started_ends_with_it() {
    let place = TestNetns::new("ends");
    let dir = tempfile::tempdir().unwrap();
    let (code, _) = run(&place, &view(dir.path()), "setsid sleep 300 & exit 4");
    assert_eq!(code, Some(4));
    assert_eq!(kill_in(slice::from_ref(&place.netns)).unwrap(), 0);
}

/// A thread moves into a view, and what it starts one after the other share its directories and the mounts there.
#[test]
fn programs_of_a_thread_share_an_empty_directory_and_its_mounts() {
    let place = TestNetns::new("shared");
    let stage = || {
        let run = vec!["/run".into()];
        View { empty: run, own: vec![Own::new("/var/lib", "/run/var-lib", &["cni"])] }.enter().unwrap();
        let script = |text: &str| {
            let mut spawn = Spawn::new("sh");
            spawn.args = vec!["-ec".to_owned(), text.to_owned()];
            spawn.env = vec![("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())];
            spawn.netns = Some(place.netns.try_clone().unwrap());
            (spawn.new_pid_namespace, spawn.fresh_kernel_files, spawn.clean_env) = (true, true, true);
            spawn.log = Some("/run/log".into());
            let code = spawn.start().unwrap().wait().unwrap().code();
            (code, std::fs::read_to_string("/run/log").unwrap())
        };
        let first = "ls /run; mkdir /run/mounted /var/lib/cni; echo x >/var/lib/cni/lease
             mount -t tmpfs none /run/mounted; echo y >/run/mounted/file; env | cut -d= -f1 | grep -v -e PWD -e SHLVL -e _";
        assert_eq!(script(first), (Some(0), "log\nvar-lib\nPATH\n".to_owned()));
        let second = ">/run/log; cat /var/lib/cni/lease /run/mounted/file; echo $$; ls /sys/class/net";
        assert_eq!(script(second), (Some(0), "x\ny\n1\nlo\n".to_owned()));
        assert_ne!(script("echo x >/etc/hgt-frozen").0, Some(0));
        std::fs::read_to_string("/run/mounted/file").unwrap()
    };
    let seen = std::thread::scope(|scope| scope.spawn(stage).join().unwrap());
    assert_eq!(seen, "y\n");
    assert!(!Path::new("/run/mounted").exists());
}

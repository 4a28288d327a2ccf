//! IPsec. Many kernels lack it, so it is not part of the sample.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::path::{Path, PathBuf};

use linux::features::{Feature, probe};
use linux::netlink::Xfrm;
use linux::{EspKey, EspTunnel, XfrmDirection, XfrmPolicy, XfrmState};
use plan::{Fault, Place, Plan, Step, Undone};
use testkit::require_root;

use crate::reconcile::reconciled;
use crate::sample::{ip, net};
use crate::scene::Scene;

fn tunnel() -> EspTunnel {
    EspTunnel { src: ip("192.0.2.1"), dst: ip("192.0.2.2"), reqid: 7 }
}

fn state() -> XfrmState {
    XfrmState { tunnel: tunnel(), spi: 0x1234.try_into().unwrap() }
}

fn policy(direction: XfrmDirection) -> XfrmPolicy {
    XfrmPolicy { direction, src: net("10.244.1.0/24"), dst: net("10.244.2.0/24"), tunnel: tunnel() }
}

fn plan(home: &Place, key_file: &Path) -> Plan {
    let mut plan = Plan::new();
    plan.push(home, Step::AddXfrmState { state: state(), key_file: key_file.to_owned() });
    for direction in [XfrmDirection::Out, XfrmDirection::In, XfrmDirection::Forward] {
        plan.push(home, Step::AddXfrmPolicy(policy(direction)));
    }
    plan
}

/// Whether this kernel lacks IPsec. If so, the skip is recorded.
fn is_missing() -> bool {
    let why = probe().expect("a namespace can be made").missing.remove(&Feature::IpSec);
    if let Some(why) = &why {
        testkit::skip(&format!("no IPsec: {why}"));
    }
    why.is_some()
}

/// A key in a file that goes with the test.
fn key() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    EspKey::generate().unwrap().keep(&file).unwrap();
    (folder, file)
}

/// What `ip` says that a scene's namespace has.
fn shown(scene: &Scene) -> String {
    let list = |what| testkit::run(&scene.world.open("home"), "ip", &["xfrm", what]);
    list("state") + &list("policy")
}

#[test]
fn commands_name_the_file_of_the_key() {
    let plan = plan(&Place::Host, Path::new("/run/own key"));
    let packets = "src 10.244.1.0/24 dst 10.244.2.0/24";
    let by = "tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 7 mode tunnel";
    assert_eq!(
        plan.commands(),
        [
            "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x00001234 reqid 7 mode tunnel \
             replay-window 1024 flag af-unspec flag esn aead 'rfc4106(gcm(aes))' \"$(cat '/run/own key')\" 128"
                .to_owned(),
            format!("ip xfrm policy add {packets} dir out {by}"),
            format!("ip xfrm policy add {packets} dir in {by}"),
            format!("ip xfrm policy add {packets} dir fwd {by}"),
        ]
    );
}

#[test]
fn undo_takes_all_of_it_wherever_apply_stopped() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file) = key();
    let plan = plan(&scene.sample.home(), &file);
    let lines = scene.apply(&plan, Fault::None).unwrap();
    let home = scene.world.open("home");
    let xfrm = Xfrm::open_in(&home).unwrap();
    assert!(xfrm.state(&state()).unwrap().unwrap().is(&state()));
    let secret = std::fs::read_to_string(&file).unwrap();
    let journal = std::fs::read_to_string(scene.path()).unwrap();
    assert!(journal.contains("4660") && !journal.contains(secret.trim()), "{journal}");
    // It is the file's key that the kernel has.
    assert!(shown(&scene).contains(secret.trim()));
    std::fs::remove_file(&file).unwrap();
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
    scene.assert_as_before("after undo");
    assert_eq!(shown(&scene), "");

    EspKey::generate().unwrap().keep(&file).unwrap();
    scene.undo_wherever_apply_stops(&plan, lines, |when| assert_eq!(shown(&scene), "", "{when}"));
}

/// What the typed commands make is what `apply` takes for its own.
#[test]
fn typed_commands_and_apply_do_the_same() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file) = key();
    let plan = plan(&scene.sample.home(), &file);
    testkit::shell(&plan.commands().join("\n"));
    let typed = shown(&scene);
    let xfrm = Xfrm::open_in(&scene.world.open("home")).unwrap();
    assert!(xfrm.state(&state()).unwrap().unwrap().is(&state()), "{typed}");
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("xfrm state delete dst 192.0.2.2 proto esp spi 0x00001234"), "{error}");
    testkit::run(&scene.world.open("home"), "ip", &["xfrm", "state", "flush"]);
    testkit::run(&scene.world.open("home"), "ip", &["xfrm", "policy", "flush"]);
    scene.undo();
    scene.apply(&plan, Fault::None).unwrap();
    assert_eq!(shown(&scene), typed);
    scene.undo();
}

/// What strangers change is repaired, and what they have is not taken.
#[test]
fn it_is_brought_back_and_nothing_of_others_is_taken() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file) = key();
    let plan = plan(&scene.sample.home(), &file);
    scene.apply(&plan, Fault::None).unwrap();
    let xfrm = Xfrm::open_in(&scene.world.open("home")).unwrap();
    let reconciled = |plan: &Plan| reconciled(&scene.path(), plan, Fault::None).unwrap();
    assert!(reconciled(&plan).is_nothing());
    xfrm.state_del(&state()).unwrap();
    xfrm.policy_del(&policy(XfrmDirection::In)).unwrap();
    assert_eq!(reconciled(&plan).repaired.len(), 2);
    assert!(xfrm.state(&state()).unwrap().unwrap().is(&state()));

    let out = policy(XfrmDirection::Out);
    let foreign = XfrmPolicy { tunnel: EspTunnel { reqid: 8, ..tunnel() }, ..out };
    xfrm.policy_del(&out).unwrap();
    xfrm.policy_add(&foreign).unwrap();
    let (results, _) = scene.undo();
    let changed =
        |undone: &Undone| matches!(undone, Undone::ChangedByOther { found } if found.contains("of reqid 8"));
    assert_eq!(results.iter().filter(|(_, undone)| changed(undone)).count(), 1, "{results:?}");
    assert_eq!(xfrm.policy(&out).unwrap().unwrap().tunnel, Some(foreign.tunnel));
}

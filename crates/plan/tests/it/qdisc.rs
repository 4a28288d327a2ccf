//! Queueing disciplines at the root of links that exist before the plan.

use linux::Qdisc;
use linux::features::{Feature, probe};
use linux::qdisc::{Fq, FqCodel, Netem, Probability};
use plan::{ApplyError, Fault, Plan, SetGsoMaxSegs, SetRootQdisc, Step, StepError, Undone};
use testkit::{World, dump, require_root, run, shell, skip};

use crate::outcomes::{is_changed, is_gone, is_so};
use crate::sample::{Sample, ifname};
use crate::scene::Scene;

fn root(qdisc: Qdisc) -> Step {
    Step::from(SetRootQdisc { link: ifname("own0"), qdisc })
}

fn pfifo(_: &Scene) -> Step {
    root(Qdisc::Pfifo { limit: 77 })
}

#[test]
fn a_root_qdisc_that_another_changed_is_left_alone() {
    if !require_root() {
        return;
    }
    // A new qdisc with the same options is another program's decision too.
    let again = "tc -n HOME qdisc replace dev own0 root handle 9: pfifo limit 77";
    Scene::check(pfifo, again, is_changed("pfifo 9:"));
    Scene::check(pfifo, "tc -n HOME qdisc change dev own0 root pfifo limit 7", is_changed("pfifo"));
    Scene::check(pfifo, "tc -n HOME qdisc del dev own0 root", is_so);
    Scene::check(pfifo, "ip -n HOME link del own0", is_gone);
    let segments = |_: &Scene| Step::from(SetGsoMaxSegs { link: ifname("own0"), segments: 1 });
    Scene::check(segments, "ip -n HOME link set own0 gso_max_segs 9", is_changed("9"));
}

#[test]
fn a_root_qdisc_that_could_not_be_put_back_is_refused() {
    if !require_root() {
        return;
    }
    let scene = Scene::with("tc -n HOME qdisc add dev own0 root handle 1a: htb");
    let refused = scene.apply_steps(&[scene.home(pfifo(&scene))]).unwrap_err();
    let ApplyError::Step { why: StepError::Refused { why }, .. } = refused else { panic!("{refused:?}") };
    let expected = "link own0 has queueing discipline htb 1a: at its root, which could not be put back";
    assert!(why.starts_with(expected) && why.contains("tc qdisc del dev own0 root"), "{why}");
    // htb has packet counters, so whole namespaces cannot be compared.
    let shown = run(&scene.world.open("home"), "tc", &["qdisc", "show", "dev", "own0", "root"]);
    assert!(shown.starts_with("qdisc htb 1a: "), "{shown}");
}

#[test]
fn a_kind_that_the_kernel_lacks_is_an_error_and_leaves_nothing() {
    if !require_root() {
        return;
    }
    let Some((_, qdisc)) = wide().into_iter().find(|(feature, _)| is_missing(*feature)) else {
        return skip("this kernel has every kind");
    };
    let scene = Scene::new();
    let text = scene.apply_steps(&[scene.home(root(qdisc))]).unwrap_err().to_string();
    assert!(text.contains("tc -n") && text.contains("no such file or directory"), "{text}");
    let (results, _) = scene.undo();
    assert_eq!(results[0].1, Undone::AlreadySo);
    scene.assert_as_before("after an error");
}

/// What the kernel gives to a link when a qdisc goes follows the machine's default, which may have changed since the
/// kernel chose for this link.
#[test]
fn the_kernels_own_kinds_come_back_though_its_default_is_another() {
    if !require_root() {
        return;
    }
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return skip("the whole machine shares the default; it needs a virtual machine of ours");
    }
    if is_missing(Feature::FqCodel) {
        return skip("this kernel has no second kind for a default");
    }
    let scene = Scene::with(
        "sysctl -qw net.core.default_qdisc=pfifo_fast
for queues in 1 3; do
    ip -n HOME link add name queues$queues numtxqueues $queues type ifb && ip -n HOME link set queues$queues up
done",
    );
    let home = scene.world.open("home");
    let kinds = |link: &str| {
        let shown = run(&home, "tc", &["qdisc", "show", "dev", link]);
        let mut kinds: Vec<_> =
            shown.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect();
        kinds.sort();
        kinds
    };
    for (link, expected) in [("queues1", 1), ("queues3", 4)] {
        let before = kinds(link);
        assert!(before.len() == expected && before.contains(&"pfifo_fast".to_owned()), "{before:?}");
        let pfifo = Step::from(SetRootQdisc { link: ifname(link), qdisc: Qdisc::Pfifo { limit: 77 } });
        shell("sysctl -qw net.core.default_qdisc=fq_codel");
        scene.apply_steps(&[scene.home(pfifo)]).expect("every kernel has the kind");
        assert_eq!(kinds(link), ["pfifo"]);
        assert_eq!(scene.undo().0[0].1, Undone::Restored);
        assert_eq!(kinds(link), before);
        shell("sysctl -qw net.core.default_qdisc=pfifo_fast");
    }
}

/// One qdisc of each kind that some kernels lack.
fn wide() -> [(Feature, Qdisc); 3] {
    let netem = Netem {
        delay_ns: 40_000_000,
        loss: Probability::from_ratio(0.002),
        reorder: Probability::from_ratio(0.01),
        rate_bytes_per_s: Some(1 << 33),
        limit: 2000,
        ..Netem::default()
    };
    let fq = Fq { limit: Some(500), flow_limit: Some(60), quantum: Some(3000), pacing: Some(false) };
    let codel = FqCodel {
        limit: Some(500),
        target_us: Some(3000),
        interval_us: Some(60_000),
        quantum: Some(300),
        ecn: Some(false),
    };
    [
        (Feature::Netem, Qdisc::Netem(netem)),
        (Feature::Fq, Qdisc::Fq(fq)),
        (Feature::FqCodel, Qdisc::FqCodel(codel)),
    ]
}

fn is_missing(feature: Feature) -> bool {
    probe().expect("root can probe").missing.contains_key(&feature)
}

/// Over a qdisc of each kind with a handle of its own, undo restores handle and options. It does so even if
/// apply died before the journal had the kernel's version of our qdisc. Over the kernel's own choice, undo
/// restores the whole namespace.
#[track_caller]
fn check_identity(feature: Feature) {
    if !require_root() {
        return;
    }
    if is_missing(feature) {
        return skip(&format!("{feature} is not in this kernel"));
    }
    let (_, qdisc) = wide().into_iter().find(|(kind, _)| *kind == feature).expect("one of each");
    let scene = Scene::new();
    let mut plan = Plan::new();
    let (place, step) = scene.home(root(qdisc.clone()));
    plan.push(&place, step);
    for (_, other) in wide().into_iter().filter(|(kind, _)| !is_missing(*kind)) {
        let other = other.to_string().replace("limit 500", "limit 501").replace("limit 2000", "limit 2001");
        shell(&format!("tc -n {} qdisc add dev own0 root handle 5: {other}", scene.sample.home));
        let shown = || run(&scene.world.open("home"), "tc", &["qdisc", "show", "dev", "own0", "root"]);
        let before = shown();
        for fault in [Fault::None, Fault::AfterStep(0)] {
            assert_eq!(scene.apply(&plan, fault).is_ok(), fault == Fault::None, "over {other}");
            assert!(shown() != before && shown().contains(qdisc.kind()), "over {other}");
            assert_eq!(scene.undo().0[0].1, Undone::Restored, "over {other}");
            assert_eq!(shown(), before, "over {other}");
        }
        shell(&format!("tc -n {} qdisc del dev own0 root", scene.sample.home));
    }
    scene.apply(&plan, Fault::None).expect("the kernel has the kind");
    assert_eq!(scene.undo().0[0].1, Undone::Restored);
    scene.assert_as_before("after undo");
    check_typed(feature, &qdisc);
}

/// Checks that the commands and the step have the same effect.
#[track_caller]
fn check_typed(feature: Feature, qdisc: &Qdisc) {
    let (typed, applied) = (World::new(), Scene::new());
    let by_hand = Sample::of(&typed);
    by_hand.furnish();
    let mut plan = Plan::new();
    plan.push(&by_hand.home(), root(qdisc.clone()));
    shell(&plan.commands().join("\n"));
    applied.apply_steps(&[applied.home(root(qdisc.clone()))]).expect("the kernel has the kind");
    let shown = run(&typed.open("home"), "tc", &["qdisc", "show", "dev", "own0"]);
    assert!(shown.contains(qdisc.kind()), "{shown}");
    let dumps = [&typed, &applied.world].map(|world| dump(&world.open("home")));
    dumps[0].assert_same(&dumps[1], &format!("{feature} typed and applied"));
}

#[test]
fn netem_goes_and_what_was_there_comes_back() {
    check_identity(Feature::Netem);
}

#[test]
fn fq_goes_and_what_was_there_comes_back() {
    check_identity(Feature::Fq);
}

#[test]
fn fq_codel_goes_and_what_was_there_comes_back() {
    check_identity(Feature::FqCodel);
}

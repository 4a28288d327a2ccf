//! The interface by which a pod asks for its address.

use datapath::{Addresses, DEVICE, Family, NodeSpec, Pod, Prefixes, find};

use crate::specs::Shape;

/// What is made before a pod has an address is done when it has one: the whole plan has the same steps, and only the
/// rest is left to do.
#[test]
fn it_is_the_beginning_of_the_pod() {
    for path in [find("macvlan").expect("a known path"), &DEVICE] {
        assert!(path.attach.can_ask_wire(), "{}", path.name);
        for families in [&Family::BOTH[..1], &Family::BOTH] {
            let shape = Shape { families, ..Shape::new("hg", path) };
            let node = shape.node(1);
            let pod = shape.pod(&node, 1);
            let asking =
                Pod { addresses: Addresses::default(), gateways: Addresses::default(), ..pod.clone() };
            // The pods' subnets are not known either.
            let mut unknown = NodeSpec { pods: Prefixes::default(), ..node.clone() };
            unknown.network.prefixes = Prefixes::default();
            let begun = path.interface_plan(&unknown, &asking).expect("it needs no address");
            let whole = path.pod_plan(&node, &pod).expect("a sound specification");
            assert!(begun.steps.len() >= 2 && begun.steps.len() < whole.steps.len(), "{}", path.name);
            let mut at = whole.steps.iter();
            for step in &begun.steps {
                assert!(
                    at.any(|other| other == step),
                    "{}: {step:?} is not in the whole, or too early",
                    path.name
                );
            }
        }
    }
}

#[test]
fn others_have_none() {
    let shape = Shape::new("hg", find("ptp+direct").expect("a known path"));
    let node = shape.node(1);
    assert!(!shape.path.attach.can_ask_wire());
    assert!(
        shape.path.interface_plan(&node, &shape.pod(&node, 1)).expect("a sound specification").is_empty()
    );
}

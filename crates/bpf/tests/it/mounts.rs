//! The mounts of several nodes, which several processes make and remove at the same time.

use bpf::pins;
use testkit::World;

use crate::node::can_run;

const TIMES: u32 = 60;

#[test]
fn removing_the_last_does_not_disturb_others() {
    if !can_run() {
        return;
    }
    let world = World::new();
    std::thread::scope(|scope| {
        for node in ["a", "b", "c"] {
            let folder = pins::folder(world.name(node).as_str());
            scope.spawn(move || {
                for _ in 0..TIMES {
                    pins::make(&folder).unwrap();
                    assert!(pins::make(&folder).is_err(), "there is one already");
                    pins::remove(&folder).unwrap();
                    assert!(!pins::exists(&folder));
                    pins::remove(&folder).unwrap();
                }
            });
        }
    });
    assert_eq!(world.pinned(), [] as [String; 0]);
}

//! Metrics of routes by nexthop objects, as routing daemons make them, and routes beside those of other programs.

use linux::Route;
use linux::netlink::{MetricValue, RouteMetric};
use plan::{Fault, Plan, SetRouteMetric, Step};
use testkit::{World, dump, require_root, run, shell};

use crate::sample::{Sample, ifname, net};
use crate::scene::Scene;

/// Ways by an object of each kind that is one way: an object, a group of one, on the link itself, in a tunnel, and one
/// of the other family.
const OBJECTS: &str = "ip -n HOME nexthop add id 1 via 192.0.2.7 dev own0 onlink
ip -n HOME nexthop add id 2 group 1
ip -n HOME nexthop add id 3 dev own0
ip -n HOME nexthop add id 4 via 2001:db8::2 dev own0
ip -n HOME route add 10.9.1.0/24 nhid 1 proto static metric 20 src 192.0.2.1 mtu lock 1400
ip -n HOME route add 10.9.2.0/24 nhid 2
ip -n HOME route add 10.9.3.0/24 nhid 3 scope link
ip -n HOME route add 10.9.4.0/24 nhid 4
ip -n HOME -6 route add 2001:db8:a::/48 nhid 4 metric 77";

fn plan(sample: &Sample) -> Plan {
    let mut plan = Plan::new();
    let number = MetricValue::Number;
    for (dst, metric, value) in [
        ("10.9.1.0/24", RouteMetric::InitCwnd, number(20)),
        ("10.9.1.0/24", RouteMetric::RtoMin, number(10)),
        ("10.9.1.0/24", RouteMetric::Mtu, number(1300)),
        ("10.9.2.0/24", RouteMetric::CongestionControl, MetricValue::Name("reno".to_owned())),
        ("10.9.3.0/24", RouteMetric::QuickAck, number(1)),
        ("10.9.4.0/24", RouteMetric::InitRwnd, number(30)),
        ("2001:db8:a::/48", RouteMetric::InitCwnd, number(16)),
    ] {
        plan.push(&sample.home(), SetRouteMetric { dst: net(dst), link: ifname("own0"), metric, value });
    }
    plan
}

#[test]
fn metrics_of_routes_by_nexthop_objects_are_set_and_taken_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(OBJECTS);
    let plan = plan(&scene.sample);
    scene.apply(&plan, Fault::None).expect("the routes are there");
    let shown = run(&scene.world.open("home"), "ip", &["route", "show", "10.9.1.0/24"]);
    for word in ["nhid 1", "proto static", "metric 20", "src 192.0.2.1", "onlink", "initcwnd 20", "mtu 1300"]
    {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
    scene.undo();
    scene.assert_as_before("after undo");
    scene.assert_undo_takes_all(&plan);
}

#[test]
fn metrics_of_routes_by_nexthop_objects_can_be_typed() {
    if !require_root() {
        return;
    }
    let (typed, applied) = (World::new(), Scene::with(OBJECTS));
    let by_hand = Sample::of(&typed);
    by_hand.furnish();
    shell(&OBJECTS.replace("HOME", by_hand.home.as_str()));
    shell(&plan(&by_hand).commands().join("\n"));
    applied.apply(&plan(&applied.sample), Fault::None).expect("the routes are there");
    let dumps = [&typed, &applied.world].map(|world| dump(&world.open("home")));
    dumps[0].assert_same(&dumps[1], "typed and applied");
}

/// To the kernel an IPv6 route without a metric is any, the first of those to the destination over the link.
#[test]
fn a_route_goes_alone_where_another_program_has_one_with_a_metric() {
    if !require_root() {
        return;
    }
    let theirs = "ip -n HOME -6 route add 2001:db8:b::/48 via 2001:db8::2 dev own0 metric 100
ip -n HOME -6 route add 2001:db8:c::/48 via 2001:db8::2 dev own0 metric 20
ip -n HOME route add 10.9.7.0/24 via 192.0.2.7 dev own0 onlink metric 100";
    let scene = Scene::with(theirs);
    let mut plan = Plan::new();
    let dev = || ifname("own0");
    for route in [
        Route::via(net("2001:db8:b::/48"), "2001:db8::2".parse().unwrap(), dev()),
        Route::on_link(net("2001:db8:c::/48"), dev()),
        Route { onlink: true, ..Route::via(net("10.9.7.0/24"), "192.0.2.7".parse().unwrap(), dev()) },
    ] {
        plan.push(&scene.sample.home(), Step::AddRoute(route));
    }
    scene.assert_undo_takes_all(&plan);
}

//! What is to be done in the cloud: a pure function of the leases, the tables and what agents of this node have made.

use ipnet::IpNet;

use super::record::Made;
use super::{Call, Interface, Record, Table, WantedRoutes};

/// What is to be done, and what cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Difference {
    /// What makes the tables lead to this node.
    pub(crate) calls: Vec<Planned>,
    /// What was made and is no longer wanted: the node has another prefix, or the network other tables.
    pub(crate) superfluous: Vec<Made>,
    /// Why a route cannot be had, in words.
    pub(crate) refused: Vec<String>,
}

/// A call that makes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) call: Call,
    /// The interface to which a dead route leads whose place it takes.
    pub(crate) before: Option<String>,
}

/// What brings the tables to what is wanted.
pub(crate) fn difference(
    wanted: &WantedRoutes,
    interface: &Interface,
    tables: &[Table],
    record: &Record,
) -> Difference {
    let mut all = Difference::default();
    if interface.checks_source {
        let call = Call::CheckSource { interface: interface.id.clone(), on: false };
        all.calls.push(Planned { call, before: None });
    }
    for table in tables {
        for prefix in &wanted.own {
            match own_route(interface, table, *prefix) {
                Ok(planned) => all.calls.extend(planned),
                Err(why) => all.refused.push(why),
            }
        }
    }
    let is_wanted =
        |made: &Made| wanted.own.contains(&made.prefix) && tables.iter().any(|table| table.id == made.table);
    all.superfluous = record.routes.iter().filter(|made| !is_wanted(made)).cloned().collect();
    all
}

/// What makes a table lead to this node.
fn own_route(interface: &Interface, table: &Table, prefix: IpNet) -> Result<Option<Planned>, String> {
    let (id, to) = (table.id.clone(), interface.id.clone());
    // A route that a gateway propagates yields to one that somebody has put there.
    let Some(route) = table.route(prefix).filter(|route| route.is_static || route.target == "local") else {
        let call = Call::Create { table: id, prefix, interface: to };
        return Ok(Some(Planned { call, before: None }));
    };
    if route.target == interface.id {
        return Ok(None);
    }
    let is_other_of_ours = route.instance.as_ref() == Some(&interface.instance);
    if route.is_to_interface() && (route.is_dead || is_other_of_ours) {
        let call = Call::Replace { table: id, prefix, interface: to };
        return Ok(Some(Planned { call, before: Some(route.target.clone()) }));
    }
    if route.target == "local" {
        return Err(format!(
            "route table {id} has {prefix}, the prefix of this node's pods, as the VPC's own, and no call can change that; \
             give pods a network outside of the VPC's"
        ));
    }
    let rest = if route.is_dead { "which is gone" } else { "which is alive" };
    Err(format!(
        "route table {id} leads {prefix}, the prefix of this node's pods, to {}, {rest}; find out who has the prefix, and \
         delete that route",
        route.leads_to()
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Route;
    use super::*;

    pub(crate) fn prefix() -> IpNet {
        "10.244.1.0/24".parse().unwrap()
    }

    pub(crate) fn interface() -> Interface {
        Interface {
            id: "eni-a".to_owned(),
            instance: "i-a".to_owned(),
            subnet: "subnet-a".to_owned(),
            vpc: "vpc-1".to_owned(),
            account: Some("111122223333".to_owned()),
            checks_source: false,
        }
    }

    /// A route to [`prefix`] that somebody has put there.
    pub(crate) fn leads(to: &str) -> Route {
        Route {
            prefix: prefix(),
            target: to.to_owned(),
            instance: to.strip_prefix("eni-").map(|name| format!("i-{name}")),
            is_dead: false,
            is_static: true,
        }
    }

    pub(crate) fn table(id: &str, routes: Vec<Route>) -> Table {
        let counted = [routes.len(), 0];
        Table { id: id.to_owned(), routes, counted }
    }

    fn between(own: &[IpNet], tables: &[Table], record: &Record) -> Difference {
        let wanted = WantedRoutes {
            tables: Vec::new(),
            addresses: [].into_iter().collect(),
            own: own.to_vec(),
            others: Vec::new(),
        };
        difference(&wanted, &interface(), tables, record)
    }

    fn create(table: &str, prefix: IpNet) -> Call {
        Call::Create { table: table.to_owned(), prefix, interface: "eni-a".to_owned() }
    }

    /// What an agent has recorded that has made these routes.
    fn recorded(calls: &[Call]) -> Record {
        let mut record = Record::default();
        calls.iter().for_each(|call| record.add(call, None));
        record
    }

    fn calls(difference: &Difference) -> Vec<&Call> {
        difference.calls.iter().map(|planned| &planned.call).collect()
    }

    #[test]
    fn a_route_is_made_and_then_nothing_is_left_to_do() {
        let none = between(&[prefix()], &[table("rtb-1", Vec::new())], &Record::default());
        assert_eq!(calls(&none), [&create("rtb-1", prefix())]);
        let record = recorded(&[create("rtb-1", prefix())]);
        let done = between(&[prefix()], &[table("rtb-1", vec![leads("eni-a")])], &record);
        assert_eq!(done, Difference::default());
    }

    #[test]
    fn the_check_of_the_interface_is_turned_off_first() {
        let interface = Interface { checks_source: true, ..interface() };
        let wanted = WantedRoutes {
            tables: Vec::new(),
            addresses: [].into_iter().collect(),
            own: vec![prefix()],
            others: Vec::new(),
        };
        let found = difference(&wanted, &interface, &[table("rtb-1", Vec::new())], &Record::default());
        let off = Call::CheckSource { interface: "eni-a".to_owned(), on: false };
        assert_eq!(calls(&found), [&off, &create("rtb-1", prefix())]);
    }

    #[test]
    fn a_node_with_another_prefix_gives_the_first_one_up() {
        let other: IpNet = "10.244.9.0/24".parse().unwrap();
        let record = recorded(&[create("rtb-1", prefix())]);
        let found = between(&[other], &[table("rtb-1", vec![leads("eni-a")])], &record);
        assert_eq!((calls(&found), &found.superfluous), (vec![&create("rtb-1", other)], &record.routes));
    }

    #[test]
    fn a_network_with_another_table_gives_the_first_one_up() {
        let record = recorded(&[create("rtb-1", prefix()), create("rtb-2", prefix())]);
        let found = between(&[prefix()], &[table("rtb-2", vec![leads("eni-a")])], &record);
        assert_eq!((calls(&found), &found.superfluous[..]), (Vec::new(), &record.routes[..1]));
    }

    #[test]
    fn a_dead_route_is_replaced_and_remembered() {
        let dead = Route { is_dead: true, ..leads("eni-c") };
        let found = between(&[prefix()], &[table("rtb-1", vec![dead])], &Record::default());
        let [Planned { call: Call::Replace { interface, .. }, before }] = &found.calls[..] else {
            panic!("{found:?}")
        };
        assert_eq!((interface.as_str(), before.as_deref()), ("eni-a", Some("eni-c")));
        // So is one to another interface of the same machine, alive or not.
        let other = Route { instance: Some("i-a".to_owned()), ..leads("eni-d") };
        let found = between(&[prefix()], &[table("rtb-1", vec![other])], &Record::default());
        assert!(matches!(found.calls[0].call, Call::Replace { .. }));
    }

    #[test]
    fn a_foreign_route_is_left_alone_and_named() {
        let gateway = Route { is_dead: true, ..leads("nat-1") };
        for (route, words) in [(leads("eni-b"), ["eni-b of i-b", "alive"]), (gateway, ["nat-1", "gone"])] {
            let found = between(&[prefix()], &[table("rtb-1", vec![route])], &Record::default());
            assert!(found.calls.is_empty(), "{found:?}");
            assert!(words.iter().all(|word| found.refused[0].contains(word)), "{found:?}");
        }
        let propagated = Route { is_static: false, ..leads("vgw-1") };
        let found = between(&[prefix()], &[table("rtb-1", vec![propagated])], &Record::default());
        assert_eq!(calls(&found), [&create("rtb-1", prefix())]);
    }

    #[test]
    fn the_prefix_of_the_vpc_itself_is_nothing_to_delete() {
        let local = Route { is_static: false, ..leads("local") };
        let found = between(&[prefix()], &[table("rtb-1", vec![local])], &Record::default());
        assert!(found.calls.is_empty(), "{found:?}");
        assert!(!found.refused[0].contains("delete") && found.refused[0].contains("outside"), "{found:?}");
    }
}

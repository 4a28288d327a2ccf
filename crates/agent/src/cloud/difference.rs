//! What is to be done in the cloud: a pure function of the leases, the tables and what agents of this node have made.

use ipnet::IpNet;

use super::record::Made;
use super::{Call, Interface, Record, Table, Wanted};

/// What is to be done, and what cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Difference {
    /// In this order: what leads to this node comes first.
    pub(crate) calls: Vec<Planned>,
    /// Why a route cannot be had, in words.
    pub(crate) refused: Vec<String>,
}

/// A call, and what it does to the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) call: Call,
    pub(crate) record: Recorded,
}

/// What a call does to the record of what was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is added before the call.
    Made(Made),
    /// It is removed after the call.
    Gone,
    /// The check of an interface is off, noted before the call.
    Unchecked,
}

/// What was found and what is known of before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    /// The interface of this node.
    pub(crate) interface: &'a Interface,
    /// The tables that are to lead to it.
    pub(crate) tables: &'a [Table],
    /// Tables that were to lead to it before.
    pub(crate) former: &'a [Table],
    /// What agents have made.
    pub(crate) record: &'a Record,
}

/// What brings the tables to what is wanted.
pub(crate) fn difference(wanted: &Wanted, found: Found<'_>) -> Difference {
    let Found { interface, tables, .. } = found;
    let mut all = Difference::default();
    if interface.checks_source {
        let call = Call::CheckSource { interface: interface.id.clone(), on: false };
        all.calls.push(Planned { call, record: Recorded::Unchecked });
    }
    for table in tables {
        for prefix in &wanted.own {
            match own_route(interface, table, *prefix) {
                Ok(planned) => all.calls.extend(planned),
                Err(why) => all.refused.push(why),
            }
        }
    }
    all.calls.extend(superfluous(wanted, found));
    all
}

/// What makes a table lead to this node.
fn own_route(interface: &Interface, table: &Table, prefix: IpNet) -> Result<Option<Planned>, String> {
    let (id, to) = (table.id.clone(), interface.id.clone());
    let made = |before: Option<String>| {
        Recorded::Made(Made { table: id.clone(), prefix, interface: to.clone(), before })
    };
    // A route that a gateway propagates yields to one that somebody has put there.
    let Some(route) = table.route(prefix).filter(|route| route.is_static || route.target == "local") else {
        let record = made(None);
        return Ok(Some(Planned {
            call: Call::Create { table: id.clone(), prefix, interface: to.clone() },
            record,
        }));
    };
    if route.target == interface.id {
        return Ok(None);
    }
    let is_other_of_ours = route.instance.as_ref() == Some(&interface.instance);
    if route.is_to_interface() && (route.is_dead || is_other_of_ours) {
        let record = made(Some(route.target.clone()));
        return Ok(Some(Planned {
            call: Call::Replace { table: id.clone(), prefix, interface: to.clone() },
            record,
        }));
    }
    let rest = if route.is_dead { "which is gone" } else { "which is alive" };
    Err(format!(
        "route table {} leads {prefix}, the prefix of this node's pods, to {}, {rest}; find out who has the prefix, and \
         delete that route",
        table.id,
        route.leads_to()
    ))
}

/// What was made and is no longer wanted: the node has another prefix, or the network other tables.
fn superfluous(wanted: &Wanted, found: Found<'_>) -> Vec<Planned> {
    let Found { tables, former, record, .. } = found;
    let is_wanted =
        |made: &&Made| wanted.own.contains(&made.prefix) && tables.iter().any(|table| table.id == made.table);
    let leads_here = |made: &&Made| {
        let table = tables.iter().chain(former).find(|table| table.id == made.table);
        let route = table.and_then(|table| table.route(made.prefix));
        route.is_some_and(|route| route.target == made.interface)
    };
    let gone = record.routes.iter().filter(|made| !is_wanted(made)).filter(leads_here);
    let delete = |made: &Made| Planned {
        call: Call::Delete { table: made.table.clone(), prefix: made.prefix },
        record: Recorded::Gone,
    };
    gone.map(delete).collect()
}

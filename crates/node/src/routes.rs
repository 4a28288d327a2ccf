//! Routes as configurations and results of plugins have them (`ipam.routes`).

use std::net::IpAddr;

use cni::Failure;
use datapath::{DataPath, PodRoute, Prefixes, gateway_in};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use crate::failures::{invalid_conf, unsupported};

/// An entry, as the specification has it since 1.1.0.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    dst: IpNet,
    gw: Option<IpAddr>,
    mtu: Option<u32>,
    priority: Option<u32>,
    advmss: Option<Value>,
    scope: Option<Value>,
    table: Option<Value>,
}

/// Reads a list of routes; `whose` is where it was found.
///
/// # Errors
/// Code 7 for what is none, or is there twice; 2 for a key that is not followed.
pub(crate) fn read(list: &Value, whose: &str) -> Result<Vec<PodRoute>, Failure> {
    // host-local and libcni write none as `null`.
    let entries = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Array(entries) => entries,
        other => return Err(invalid_conf(format!("{whose} is {other}; a list of routes is expected"))),
    };
    let mut routes: Vec<PodRoute> = Vec::new();
    for entry in entries {
        let route = one(entry, whose)?;
        if routes.iter().any(|other| (other.dst, other.metric) == (route.dst, route.metric)) {
            let why = format!("{whose} has two routes to {}; `priority` distinguishes them", route.dst);
            return Err(invalid_conf(why));
        }
        routes.push(route);
    }
    Ok(routes)
}

fn one(entry: &Value, whose: &str) -> Result<PodRoute, Failure> {
    let written: Written = serde_json::from_value(entry.clone())
        .map_err(|error| invalid_conf(format!("{whose} has {entry}: {error}")))?;
    let others = [("advmss", &written.advmss), ("scope", &written.scope), ("table", &written.table)];
    if let Some((key, value)) = others.iter().find_map(|(key, value)| Some((key, value.as_ref()?))) {
        let why = format!("{whose} has {} with `{key}` {value}, which is not followed here", written.dst);
        return Err(unsupported(why));
    }
    // In their configurations an MTU or a priority of 0 is none.
    let given = |number: Option<u32>| number.filter(|number| *number > 0);
    Ok(PodRoute {
        dst: written.dst.trunc(),
        via: written.gw,
        mtu: given(written.mtu),
        metric: given(written.priority),
    })
}

/// The routes as pods of an attach have them: where the node is the only neighbour, a route by it is one
/// by the usual way.
///
/// # Errors
/// Code 2: a route goes by another neighbour, and there is none.
pub(crate) fn of_attach(
    path: &DataPath,
    routes: Vec<PodRoute>,
    pods: &Prefixes,
    whose: &str,
) -> Result<Vec<PodRoute>, Failure> {
    if path.attach.has_neighbours() {
        return Ok(routes);
    }
    let is_node = |gw: IpAddr| pods.iter().any(|subnet| gateway_in(subnet) == gw);
    let other = routes.iter().find_map(|route| Some((route.dst, route.via.filter(|gw| !is_node(*gw))?)));
    if let Some((dst, gw)) = other {
        let name = path.name;
        let why = format!(
            "{whose} has {dst} by {gw}; the only neighbour of a container is its gateway, the first address of its \
             subnet, with {name}"
        );
        return Err(unsupported(why));
    }
    Ok(routes.into_iter().map(|route| PodRoute { via: None, ..route }).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(list: &Value) -> (u32, String) {
        let failure = read(list, "`ipam.routes`").unwrap_err();
        (failure.code.unwrap().0, failure.message)
    }

    #[test]
    fn routes_are_those_of_the_specification() {
        let list = json!([
            { "dst": "0.0.0.0/0" }, { "dst": "10.7.1.9/16", "gw": "10.1.2.9", "mtu": 1400, "priority": 50 },
            { "dst": "10.7.0.0/16", "gw": null, "mtu": 0, "priority": 0 },
        ]);
        let route = |dst: &str| PodRoute { dst: dst.parse().unwrap(), via: None, mtu: None, metric: None };
        let via = Some("10.1.2.9".parse().unwrap());
        let expected = [
            route("0.0.0.0/0"),
            PodRoute { via, mtu: Some(1400), metric: Some(50), ..route("10.7.0.0/16") },
            route("10.7.0.0/16"),
        ];
        assert_eq!(read(&list, "").unwrap(), expected);
        assert_eq!(read(&Value::Null, "").unwrap(), []);
    }

    #[test]
    fn what_is_not_followed_is_named() {
        let table = refused(&json!([{ "dst": "10.0.0.0/8", "table": 100 }]));
        assert_eq!(
            table,
            (2, "`ipam.routes` has 10.0.0.0/8 with `table` 100, which is not followed here".to_owned())
        );
        assert_eq!(refused(&json!([{ "dst": "10.0.0.0/8", "advmss": 1400 }])).0, 2);
        let twice = refused(&json!([{ "dst": "10.0.0.0/8" }, { "dst": "10.1.0.0/8", "gw": "10.1.2.9" }]));
        assert_eq!(
            twice,
            (7, "`ipam.routes` has two routes to 10.0.0.0/8; `priority` distinguishes them".to_owned())
        );
        assert_eq!(refused(&json!([{ "dst": "10.0.0.0" }])).0, 7);
        assert_eq!(refused(&json!([{ "gw": "10.0.0.1" }])).0, 7);
        assert_eq!(refused(&json!({ "dst": "10.0.0.0/8" })).0, 7);
        assert!(
            refused(&json!([{ "dst": "10.0.0.0/8", "via": "10.1.2.9" }])).1.contains("unknown field `via`")
        );
    }
}

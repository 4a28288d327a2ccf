//! What differs from node to node: one configuration serves both, with marks in place of a node's own values.

use datapath::{Family, NodeSpec};
use serde_json::{Map, Value};

/// The marks that may stand in a configuration's texts, as `${NAME}`.
const NAMES: [&str; 6] = ["POD_CIDR", "POD_CIDR6", "POD_GATEWAY", "NODE", "WIRE", "MTU"];
/// Of these the ones that are numbers, and become one where they are a whole text: `"mtu": "${MTU}"`.
const NUMBERS: [&str; 2] = ["NODE", "MTU"];
/// host-local's subnets that stand for the node's own, with the mark for each. That is what Kubernetes' network
/// plugins made of them before they called host-local.
const CONVENTIONS: [(&str, &str); 2] = [("usePodCidr", "POD_CIDR"), ("usePodCidrIPv6", "POD_CIDR6")];

/// A node's own values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeValues([(&'static str, String); NAMES.len()]);

impl NodeValues {
    /// Those of a node; empty texts for a family that it does not have.
    pub(crate) fn of(node: &NodeSpec) -> NodeValues {
        let cidr = |family| node.pods.of(family).next().map(|net| net.to_string()).unwrap_or_default();
        let gateway = node.gateways().find(|net| net.addr().is_ipv4());
        NodeValues([
            ("POD_CIDR", cidr(Family::V4)),
            ("POD_CIDR6", cidr(Family::V6)),
            ("POD_GATEWAY", gateway.map(|net| net.addr().to_string()).unwrap_or_default()),
            ("NODE", node.id.to_string()),
            ("WIRE", node.wire.to_string()),
            ("MTU", node.wire_mtu.to_string()),
        ])
    }

    /// The prefixes of the node's pods, IPv4 first.
    pub(crate) fn pod_cidrs(&self) -> Vec<&str> {
        ["POD_CIDR", "POD_CIDR6"]
            .map(|name| self.get(name))
            .into_iter()
            .filter(|cidr| !cidr.is_empty())
            .collect()
    }

    /// A plugin's configuration with the values in it.
    pub(crate) fn fill(&self, conf: &Map<String, Value>) -> Map<String, Value> {
        conf.iter().map(|(key, value)| (key.clone(), self.filled(key, value))).collect()
    }

    fn filled(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => Value::Object(self.fill(object)),
            Value::Array(list) => list.iter().map(|value| self.filled(key, value)).collect(),
            Value::String(text) => self.text(key, text),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&self, key: &str, text: &str) -> Value {
        let convention = CONVENTIONS.iter().find(|(word, _)| key == "subnet" && *word == text);
        if let Some((_, name)) = convention {
            return self.get(name).into();
        }
        let number = NUMBERS.iter().find(|name| text == mark(name));
        if let Some(number) = number.and_then(|name| self.get(name).parse::<u64>().ok()) {
            return number.into();
        }
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&mark(name), value)).into()
    }

    fn get(&self, name: &str) -> &str {
        &self.0.iter().find(|(known, _)| *known == name).expect("the names are those of the list").1
    }
}

fn mark(name: &str) -> String {
    format!("${{{name}}}")
}

/// Refuses unknown placeholders: a plugin would get `${MTTU}` and report something less clear.
pub(super) fn check(conf: &Map<String, Value>) -> Result<(), String> {
    conf.values().try_for_each(check_value)
}

fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(object) => check(object),
        Value::Array(list) => list.iter().try_for_each(check_value),
        Value::String(text) => check_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_text(text: &str) -> Result<(), String> {
    for rest in text.split("${").skip(1) {
        let name = rest.split_once('}').map(|(name, _)| name);
        if !name.is_some_and(|name| NAMES.contains(&name)) {
            let what = name.map_or_else(|| format!("${{{rest}"), mark);
            let known = NAMES.map(mark).join(", ");
            return Err(format!("`{what}` in {text:?} is no placeholder; {known} are"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values() -> NodeValues {
        NodeValues([
            ("POD_CIDR", "10.244.2.0/24".to_owned()),
            ("POD_CIDR6", "fd00:244:0:2::/64".to_owned()),
            ("POD_GATEWAY", "10.244.2.1".to_owned()),
            ("NODE", "2".to_owned()),
            ("WIRE", "eth0".to_owned()),
            ("MTU", "1500".to_owned()),
        ])
    }

    #[track_caller]
    fn check_filled(conf: &Value, expected: &Value) {
        let conf = conf.as_object().unwrap();
        check(conf).unwrap();
        assert_eq!(Value::Object(values().fill(conf)), *expected);
    }

    #[test]
    fn marks_are_replaced_wherever_a_text_is() {
        check_filled(
            &json!({"master": "${WIRE}", "mtu": "${MTU}", "a": [{"b": "10.244.${NODE}.${NODE}0"}], "n": 7}),
            &json!({"master": "eth0", "mtu": 1500, "a": [{"b": "10.244.2.20"}], "n": 7}),
        );
        check_filled(
            &json!({"gw": "${POD_GATEWAY}", "t": "mtu ${MTU}", "x": "${POD_CIDR6}", "$": "$5 {x} $$"}),
            &json!({"gw": "10.244.2.1", "t": "mtu 1500", "x": "fd00:244:0:2::/64", "$": "$5 {x} $$"}),
        );
    }

    #[test]
    fn the_subnets_of_host_local_are_understood_and_nothing_else_that_looks_so() {
        check_filled(
            &json!({"ipam": {"ranges": [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]}}),
            &json!({"ipam": {"ranges": [[{"subnet": "10.244.2.0/24"}], [{"subnet": "fd00:244:0:2::/64"}]]}}),
        );
        check_filled(&json!({"name": "usePodCidr"}), &json!({"name": "usePodCidr"}));
    }

    #[test]
    fn a_mark_that_stands_for_nothing_is_named() {
        for (text, says) in
            [("x${NOD}", "`${NOD}` in"), ("${", "`${` in"), ("${MTU", "`${MTU` in"), ("${}", "`${}` in")]
        {
            let error = check(json!({"a": [{"b": text}]}).as_object().unwrap()).unwrap_err();
            assert!(error.starts_with(says) && error.contains("${POD_CIDR}"), "{error}");
        }
    }
}

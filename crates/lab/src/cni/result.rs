//! What plugins answer: results and error objects.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// The pod's addresses in a result: those on an interface in its namespace, and those without an interface.
pub(super) fn addresses(result: &Value, netns_path: &str) -> Result<Vec<IpNet>, String> {
    let no_list = Vec::new();
    let list = |key: &str| match result.get(key) {
        None | Some(Value::Null) => Ok(&no_list),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(format!("`{key}` of its result is {other}, and a list is expected")),
    };
    let (ips, interfaces) = (list("ips")?, list("interfaces")?);
    let mut addresses = Vec::new();
    for ip in ips {
        if let Some(index) = ip.get("interface").filter(|index| !index.is_null()) {
            let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
            let interface = index.and_then(|index| interfaces.get(index));
            let interface = interface.ok_or_else(|| format!("its result has no interface for {ip}"))?;
            if interface.get("sandbox").and_then(Value::as_str) != Some(netns_path) {
                continue;
            }
        }
        addresses.push(address(ip)?);
    }
    Ok(addresses)
}

fn address(ip: &Value) -> Result<IpNet, String> {
    let text = ip.get("address").and_then(Value::as_str);
    let text = text.ok_or_else(|| format!("its result has no `address` in {ip}"))?;
    let address: IpNet = text
        .parse()
        .map_err(|_| format!("its result has {text:?} where an address with a prefix length is expected"))?;
    match address.addr() {
        ip if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() => {
            Err(format!("its result gives the pod {ip}, which cannot be reached"))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => Ok(address),
    }
}

/// The result that a plugin printed.
pub(super) fn read(printed: &str) -> Result<Value, String> {
    if printed.trim().is_empty() {
        return Err("it said that it worked and printed no result".to_owned());
    }
    match serde_json::from_str(printed) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("its result is no JSON object: {}", beginning(printed))),
        Err(error) => Err(format!("its result is no JSON ({error}): {}", beginning(printed))),
    }
}

/// Why a plugin failed: its error object, or else whatever it said.
pub(super) fn complaint(printed: &str, log: &str, status: &str) -> String {
    let object: Option<Value> = serde_json::from_str(printed).ok();
    let field =
        |key: &str| object.as_ref().and_then(|object| object.get(key)).filter(|value| !value.is_null());
    let text = |key: &str| field(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let Some(message) = text("msg") else {
        let said = [printed, log].map(str::trim).into_iter().find(|said| !said.is_empty());
        return match said {
            Some(said) => format!("it ended with {status}: {}", ending(said)),
            None => format!("it ended with {status} and said nothing"),
        };
    };
    let details = text("details").map(|details| format!(": {details}")).unwrap_or_default();
    let code = field("code").map(|code| format!(" (code {code})")).unwrap_or_default();
    format!("{message}{details}{code}")
}

/// How much of a program's output an error quotes, in bytes.
const TOLD_CHARS: usize = 300;

fn beginning(text: &str) -> String {
    text.trim().chars().take(TOLD_CHARS).collect()
}

/// The last lines, where the reason is.
fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines[lines.len().saturating_sub(3)..].join(" | ");
    let chars = text.chars().count();
    text.chars().skip(chars.saturating_sub(TOLD_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pods_addresses_are_those_in_its_namespace() {
        let interfaces = json!([{"name": "veth0"}, {"name": "eth0", "sandbox": "/run/netns/a"}, {"sandbox": "/run/netns/b"}]);
        let result = json!({"interfaces": interfaces, "ips": [
            {"address": "10.0.0.1/24", "interface": 0},
            {"version": "4", "address": "10.0.0.2/24", "interface": 1, "gateway": "10.0.0.1"},
            {"address": "10.0.0.3/24", "interface": 2},
            {"address": "fd00::2/64"},
            {"address": "fd00::3/64", "interface": null},
        ]});
        let addresses = addresses(&result, "/run/netns/a").unwrap();
        let expected: Vec<IpNet> =
            ["10.0.0.2/24", "fd00::2/64", "fd00::3/64"].map(|text| text.parse().unwrap()).into();
        assert_eq!(addresses, expected);
    }

    #[test]
    fn a_result_without_addresses_is_one() {
        assert_eq!(addresses(&json!({"cniVersion": "1.0.0"}), "x").unwrap(), []);
        assert_eq!(addresses(&json!({"ips": null}), "x").unwrap(), []);
    }

    #[track_caller]
    fn check(result: &Value, says: &str) {
        let error = addresses(result, "x").unwrap_err();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn results_that_cannot_be_understood_are_told() {
        check(&json!({"ips": {}}), "`ips` of its result is {}");
        check(&json!({"ips": [7]}), "no `address` in 7");
        check(&json!({"ips": [{"address": 7}]}), "no `address`");
        check(&json!({"ips": [{"address": "10.0.0.1"}]}), "\"10.0.0.1\" where an address with");
        check(&json!({"ips": [{"address": "127.0.0.1/8"}]}), "127.0.0.1, which cannot be reached");
        check(&json!({"ips": [{"address": "10.0.0.1/24", "interface": 0}]}), "no interface for");
        check(&json!({"ips": [{"address": "10.0.0.1/24", "interface": -1}]}), "no interface for");
        check(&json!({"interfaces": 3, "ips": []}), "`interfaces` of its result is 3");
        for (printed, says) in [
            ("", "printed no result"),
            (" \n", "printed no result"),
            ("7", "no JSON object: 7"),
            ("{\"a\":", "no JSON (EOF"),
        ] {
            let error = read(printed).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn an_error_object_is_told_whole_and_anything_else_by_its_end() {
        let status = "exit status: 1";
        let object = r#"{"cniVersion":"1.0.0","code":11,"msg":"no range","details":"set one\n"}"#;
        assert_eq!(complaint(object, "noise", status), "no range: set one (code 11)");
        assert_eq!(complaint(r#"{"code":999,"msg":"x"}"#, "", status), "x (code 999)");
        assert_eq!(complaint(r#"{"code":7}"#, "", status), r#"it ended with exit status: 1: {"code":7}"#);
        assert_eq!(complaint("", "a\nb\n\nc\nd\n", status), "it ended with exit status: 1: b | c | d");
        assert_eq!(complaint(" ", "", status), "it ended with exit status: 1 and said nothing");
    }
}

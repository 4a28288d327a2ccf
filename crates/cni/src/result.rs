//! What a plugin prints when ADD worked: the result (section 5, "Success").

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The result of ADD. It is kept as it was printed, since what a runtime does not know is for the next plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddResult(Map<String, Value>);

/// Why a result cannot be understood.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ResultError {
    /// The plugin ended with status 0 and printed nothing.
    #[error("it said that it worked and printed no result")]
    Empty,
    /// The text is no JSON.
    #[error("its result is no JSON ({source}): {printed}")]
    Json {
        source: serde_json::Error,
        /// The beginning of the text, for the message.
        printed: String,
    },
    /// It is JSON, and no object.
    #[error("its result is no JSON object: {0}")]
    NoObject(String),
    /// Interfaces or addresses are no list.
    #[error("`{key}` of its result is {found}, and a list is expected")]
    NoList {
        key: &'static str,
        /// The value in the list's place.
        found: Value,
    },
    /// An address is on an interface that is not listed.
    #[error("its result has no interface for {0}")]
    NoInterface(Value),
    /// An entry of the addresses has none.
    #[error("its result has no `address` in {0}")]
    NoAddress(Value),
    /// An address cannot be read.
    #[error("its result has {0:?} where an address with a prefix length is expected")]
    Address(String),
    /// An address that no other host can send to.
    #[error("its result gives the pod {0}, which cannot be reached")]
    OutOfReach(IpAddr),
}

/// How much of a text an error quotes, in characters.
const QUOTED_CHARS: usize = 300;

impl AddResult {
    /// Reads what a plugin printed. Interfaces and addresses are not looked at yet.
    ///
    /// # Errors
    /// A text that is no JSON object.
    pub fn read(printed: &str) -> Result<AddResult, ResultError> {
        let quoted = || printed.trim().chars().take(QUOTED_CHARS).collect::<String>();
        if printed.trim().is_empty() {
            return Err(ResultError::Empty);
        }
        match serde_json::from_str(printed) {
            Ok(Value::Object(object)) => Ok(AddResult(object)),
            Ok(_) => Err(ResultError::NoObject(quoted())),
            Err(source) => Err(ResultError::Json { source, printed: quoted() }),
        }
    }

    /// The container's addresses: those on an interface in its namespace, given as in `CNI_NETNS`, and those without
    /// an interface. In the versions that have the family beside an address, the address says it too.
    ///
    /// # Errors
    /// The first entry that is not as the specification has it, or no address of a host.
    pub fn addresses(&self, netns: &str) -> Result<Vec<IpNet>, ResultError> {
        let interfaces = self.list("interfaces")?;
        let mut addresses = Vec::new();
        for ip in self.list("ips")? {
            if let Some(index) = ip.get("interface").filter(|index| !index.is_null()) {
                let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                let interface = index.and_then(|index| interfaces.get(index));
                let interface = interface.ok_or_else(|| ResultError::NoInterface(ip.clone()))?;
                if interface.get("sandbox").and_then(Value::as_str) != Some(netns) {
                    continue;
                }
            }
            addresses.push(address(ip)?);
        }
        Ok(addresses)
    }

    /// The object as the plugin printed it.
    pub fn as_json(&self) -> &Map<String, Value> {
        &self.0
    }

    fn list(&self, key: &'static str) -> Result<&[Value], ResultError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(found) => Err(ResultError::NoList { key, found: found.clone() }),
        }
    }
}

impl From<Map<String, Value>> for AddResult {
    fn from(object: Map<String, Value>) -> AddResult {
        AddResult(object)
    }
}

fn address(ip: &Value) -> Result<IpNet, ResultError> {
    let text = ip.get("address").and_then(Value::as_str);
    let text = text.ok_or_else(|| ResultError::NoAddress(ip.clone()))?;
    let address: IpNet = text.parse().map_err(|_| ResultError::Address(text.to_owned()))?;
    let ip = address.addr();
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() {
        return Err(ResultError::OutOfReach(ip));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn addresses(result: &Value, netns: &str) -> Result<Vec<IpNet>, ResultError> {
        AddResult::read(&result.to_string()).unwrap().addresses(netns)
    }

    #[test]
    fn the_containers_addresses_are_those_in_its_namespace() {
        let interfaces = json!([{"name": "veth0"}, {"name": "eth0", "sandbox": "/run/netns/a"}, {"sandbox": "/run/netns/b"}]);
        let result = json!({"interfaces": interfaces, "ips": [
            {"address": "10.0.0.1/24", "interface": 0},
            {"version": "4", "address": "10.0.0.2/24", "interface": 1, "gateway": "10.0.0.1"},
            {"address": "10.0.0.3/24", "interface": 2},
            {"address": "fd00::2/64"},
            {"address": "fd00::3/64", "interface": null},
        ]});
        let expected: Vec<IpNet> =
            ["10.0.0.2/24", "fd00::2/64", "fd00::3/64"].map(|text| text.parse().unwrap()).into();
        assert_eq!(addresses(&result, "/run/netns/a").unwrap(), expected);
    }

    #[test]
    fn a_result_without_addresses_is_one() {
        assert_eq!(addresses(&json!({"cniVersion": "1.0.0"}), "x").unwrap(), []);
        assert_eq!(addresses(&json!({"ips": null}), "x").unwrap(), []);
    }

    #[track_caller]
    fn check(result: &Value, says: &str) {
        let error = addresses(result, "x").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn results_that_cannot_be_understood_are_refused() {
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
            let error = AddResult::read(printed).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

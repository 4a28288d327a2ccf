//! The database of a switch, which configures its daemon: JSON-RPC over a socket.
//!
//! Source: RFC 7047 (the protocol), ovs-vswitchd.conf.db(5) (the tables).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::dpdk::{REST, resting};
use crate::error::Attempt;
use crate::{Error, IfName, Mac, Result};

/// The name of the socket in the directory of a switch.
pub(super) const SOCKET: &str = "db.sock";
/// The database of switches, which is also its one table with a single row.
const DATABASE: &str = "Open_vSwitch";
/// How long the daemon may take to make what the database says.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the database.
#[derive(Debug)]
pub struct Database {
    stream: UnixStream,
    what: String,
}

/// A bridge to be made, with its port that is a link of the namespace itself.
#[derive(Debug, Clone, Copy)]
pub struct NewBridge<'a> {
    /// Its name, and that of its link.
    pub name: &'a IfName,
    /// The Ethernet address of its link.
    pub mac: Mac,
    /// The MTU of its link in bytes.
    pub mtu: u32,
    /// What forwards, as the database has it: `system` for the kernel, `netdev` for the daemon.
    pub datapath: &'a str,
}

/// A port to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewPort<'a> {
    /// The bridge that gets it.
    pub bridge: &'a IfName,
    /// Its name, which is that of a link unless it is a tunnel.
    pub name: &'a IfName,
    /// The kind of its interface: empty for a link, `vxlan`, `geneve`, `afxdp-nonpmd`, `afxdp`, `dpdkvhostuserclient`.
    pub kind: &'a str,
    /// The options of its interface.
    pub options: &'a BTreeMap<String, String>,
    /// What comes in by it goes out by no other such port.
    pub protected: bool,
}

/// The interface of a port, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundInterface {
    /// The type of the interface, as in [`NewPort::kind`].
    pub kind: String,
    /// The options of the interface, as in [`NewPort::options`].
    pub options: BTreeMap<String, String>,
    /// What the daemon says is wrong with it.
    pub error: Option<String>,
}

impl Database {
    /// A path of a socket has at most 107 bytes, and one below `/proc` stands for a directory of any name.
    pub(super) fn open(dir: &Path) -> Result<Database> {
        let what = format!("the database of Open vSwitch in {}", dir.display());
        let connect = || {
            let held = File::open(dir)?;
            let stream = UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd()))?;
            stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(5)))?;
            io::Result::Ok(stream)
        };
        let stream = connect().attempt(|| format!("connect to {what}"))?;
        Ok(Database { stream, what })
    }

    /// Makes the one row, without which the daemon does nothing, with these settings.
    pub(super) fn begin(&mut self, settings: &BTreeMap<&str, String>) -> Result<()> {
        let settings = map(settings.iter().map(|(key, value)| (*key, value.clone())));
        let row = json!({"other_config": settings});
        self.transact(vec![json!({"op": "insert", "table": DATABASE, "row": row})]).map(drop)
    }

    /// Lets the threads of a daemon with DPDK sleep between two looks at their ports, or not; returns when they do. A
    /// thread that never sleeps takes a CPU, whether there are packets or not.
    ///
    /// # Errors
    /// The daemon does not do it.
    pub fn rest(&mut self, rests: bool) -> Result<()> {
        let mut operations = vec![mutate(DATABASE, None, ["other_config", "delete"], &json!(["set", REST]))];
        if rests {
            operations.push(mutate(DATABASE, None, ["other_config", "insert"], &map(resting())));
        }
        self.change(operations)
    }

    /// Makes a bridge; returns when its link is there. It forwards as a bridge does that learns.
    ///
    /// # Errors
    /// The daemon does not do it, or says what is wrong with it.
    pub fn add_bridge(&mut self, bridge: NewBridge<'_>) -> Result<()> {
        let NewBridge { name, mac, mtu, datapath } = bridge;
        let interface = json!({"name": name.as_str(), "type": "internal", "mtu_request": mtu});
        let hwaddr = map([("hwaddr", mac.to_string())]);
        let row = json!({"name": name.as_str(), "ports": ["named-uuid", "port"], "other_config": hwaddr,
            "datapath_type": datapath});
        self.change(vec![
            json!({"op": "insert", "table": "Interface", "uuid-name": "interface", "row": interface}),
            json!({"op": "insert", "table": "Port", "uuid-name": "port",
                "row": {"name": name.as_str(), "interfaces": ["named-uuid", "interface"]}}),
            json!({"op": "insert", "table": "Bridge", "uuid-name": "bridge", "row": row}),
            mutate(DATABASE, None, ["bridges", "insert"], &json!(["named-uuid", "bridge"])),
        ])?;
        self.check_interface(name)
    }

    /// Makes a port of a bridge; returns when packets pass it.
    ///
    /// # Errors
    /// As [`Database::add_bridge`], or the daemon was built without ports of the kind.
    pub fn add_port(&mut self, port: NewPort<'_>) -> Result<()> {
        let NewPort { bridge, name, kind, options, protected } = port;
        self.check_kind(kind)?;
        let options = map(options.iter().map(|(key, value)| (key.as_str(), value.clone())));
        let interface = json!({"name": name.as_str(), "type": kind, "options": options});
        let row = json!({"name": name.as_str(), "interfaces": ["named-uuid", "interface"],
            "protected": protected});
        self.change(vec![
            json!({"op": "insert", "table": "Interface", "uuid-name": "interface", "row": interface}),
            json!({"op": "insert", "table": "Port", "uuid-name": "port", "row": row}),
            mutate("Bridge", Some(bridge), ["ports", "insert"], &json!(["named-uuid", "port"])),
        ])?;
        self.check_interface(name)
    }

    /// Removes a bridge with its ports; returns when its link is gone.
    ///
    /// # Errors
    /// The daemon does not do it.
    pub fn remove_bridge(&mut self, name: &IfName) -> Result<()> {
        let uuids = self.uuids("Bridge", name)?;
        self.change(vec![mutate(DATABASE, None, ["bridges", "delete"], &uuids)])
    }

    /// Removes a port of a bridge; returns when no packet passes it.
    ///
    /// # Errors
    /// The daemon does not do it.
    pub fn remove_port(&mut self, bridge: &IfName, name: &IfName) -> Result<()> {
        let uuids = self.uuids("Port", name)?;
        self.change(vec![mutate("Bridge", Some(bridge), ["ports", "delete"], &uuids)])
    }

    /// The interface of a name; `None` if there is none.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn interface(&mut self, name: &IfName) -> Result<Option<FoundInterface>> {
        let rows = self.select("Interface", name, &["type", "options", "error"])?;
        Ok(rows.first().map(|row| FoundInterface {
            kind: row["type"].as_str().unwrap_or_default().to_owned(),
            options: entries(&row["options"]),
            error: row["error"].as_str().map(str::to_owned),
        }))
    }

    /// What the daemon was built without it would call an address family that is not supported.
    fn check_kind(&mut self, kind: &str) -> Result<()> {
        let select = json!({"op": "select", "table": DATABASE, "where": [], "columns": ["iface_types"]});
        let results = self.transact(vec![select])?;
        let known = results.first().and_then(|result| result["rows"][0]["iface_types"][1].as_array());
        let is_known = |known: &Vec<Value>| known.iter().any(|known| known == kind);
        if kind.is_empty() || known.is_none_or(is_known) {
            return Ok(());
        }
        Err(self.invalid(&format!("this Open vSwitch was built without ports of kind {kind}")))
    }

    fn check_interface(&mut self, name: &IfName) -> Result<()> {
        let found = self.interface(name)?;
        let why = match found {
            None => "the database lost it".to_owned(),
            Some(FoundInterface { error: Some(why), .. }) => why,
            Some(FoundInterface { error: None, .. }) => return Ok(()),
        };
        Err(Error::new(format!("make the port {name} in {}", self.what), io::Error::other(why)))
    }

    /// The references to the rows of a name, as a set.
    fn uuids(&mut self, table: &str, name: &IfName) -> Result<Value> {
        let rows = self.select(table, name, &["_uuid"])?;
        let uuids: Vec<&Value> = rows.iter().map(|row| &row["_uuid"]).collect();
        Ok(json!(["set", uuids]))
    }

    /// The rows of a name.
    fn select(&mut self, table: &str, name: &IfName, columns: &[&str]) -> Result<Vec<Value>> {
        let select = json!({"op": "select", "table": table, "where": those(Some(name)), "columns": columns});
        let mut results = self.transact(vec![select])?;
        match results.first_mut().map(|result| result["rows"].take()) {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Err(self.invalid("an answer without rows")),
        }
    }

    /// Does the operations, and waits until the daemon has made what they say: it writes down the number that it has
    /// seen. That may be a later one, if another program changes the database too.
    fn change(&mut self, mut operations: Vec<Value>) -> Result<()> {
        operations.push(mutate(DATABASE, None, ["next_cfg", "+="], &json!(1)));
        operations.push(json!({"op": "select", "table": DATABASE, "where": [], "columns": ["next_cfg"]}));
        let results = self.transact(operations)?;
        let number = results.last().and_then(|result| result["rows"][0]["next_cfg"].as_u64());
        let number = number.ok_or_else(|| self.invalid("an answer without a number"))?;
        let wait = json!({"op": "wait", "timeout": PATIENCE.as_millis() as u64, "table": DATABASE,
            "where": [["cur_cfg", "<", number]], "columns": ["cur_cfg"], "until": "==", "rows": []});
        self.transact(vec![wait]).map(drop)
    }

    /// Does operations together, or none of them; the result of each.
    fn transact(&mut self, operations: Vec<Value>) -> Result<Vec<Value>> {
        let mut params = vec![json!(DATABASE)];
        params.extend(operations);
        let request = json!({"method": "transact", "params": params, "id": 0}).to_string();
        let attempted = || format!("change {}", self.what);
        let mut answers = serde_json::Deserializer::from_reader(&self.stream).into_iter::<Value>();
        (&self.stream).write_all(request.as_bytes()).attempt(attempted)?;
        // It asks whether we are there (`echo`) only of connections that are silent for seconds.
        let answer = answers.find(|answer| answer.as_ref().map_or(true, |answer| answer["method"].is_null()));
        let answer = match answer {
            Some(answer) => answer.map_err(io::Error::from).attempt(attempted)?,
            None => return Err(self.invalid("it has closed the connection")),
        };
        let Value::Array(results) = &answer["result"] else {
            return Err(self.invalid(&answer["error"].to_string()));
        };
        match results.iter().find_map(|result| result["error"].as_str().map(|error| (error, result))) {
            Some((error, result)) => {
                let details = result["details"].as_str().unwrap_or_default();
                Err(self.invalid(&format!("{error}: {details}")))
            }
            None => Ok(results.clone()),
        }
    }

    fn invalid(&self, why: &str) -> Error {
        Error::invalid(format!("change {}", self.what), why)
    }
}

/// Changes a column of the row of a name, or of all.
fn mutate(table: &str, name: Option<&IfName>, [column, how]: [&str; 2], value: &Value) -> Value {
    json!({"op": "mutate", "table": table, "where": those(name), "mutations": [[column, how, value]]})
}

/// The condition that a row has the name, or none.
fn those(name: Option<&IfName>) -> Value {
    name.map_or_else(|| json!([]), |name| json!([["name", "==", name.as_str()]]))
}

/// A map in the form of the protocol.
fn map<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> Value {
    let pairs: Vec<Value> = entries.into_iter().map(|(key, value)| json!([key, value])).collect();
    json!(["map", pairs])
}

/// What a map of strings holds; nothing if it is none.
fn entries(map: &Value) -> BTreeMap<String, String> {
    let pairs = map[1].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    pairs.iter().filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let options = BTreeMap::from([("key", "1"), ("remote_ip", "192.0.2.1")]);
        let written = map(options.iter().map(|(key, value)| (*key, (*value).to_owned())));
        assert_eq!(written.to_string(), r#"["map",[["key","1"],["remote_ip","192.0.2.1"]]]"#);
        let read = entries(&written);
        assert!(read.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(options));
        assert!(entries(&json!(["set", []])).is_empty() && entries(&Value::Null).is_empty());
    }
}

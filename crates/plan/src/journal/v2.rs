//! Lines of journals of format 2, read as those of today. A tuning that stands may have such a journal, and lines of
//! today behind its own where it was added to.
//!
//! What a register held had a word and field names of its own there, and nothing was kept of a value that could only be
//! what the step asked for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::entry::{Entry, VERSION};

/// How the state of a setting was written.
struct Form {
    /// The name of the step in the journal.
    step: &'static str,
    /// The name that the state has in the journal.
    state: &'static str,
    /// The fields with the value, before and after the step.
    value: [&'static str; 2],
    /// The field with what the kernel changes together with the value.
    along: Option<&'static str>,
}

const FORMS: &[Form] = &[
    Form { step: "set_link_up", state: "up", value: ["up", "up"], along: None },
    Form { step: "set_link_mtu", state: "mtu", value: ["mtu", "mtu"], along: Some("others") },
    Form { step: "set_hairpin", state: "hairpin", value: ["on", "on"], along: None },
    Form { step: "set_sysctl", state: "sysctl", value: ["value", "value"], along: Some("along") },
    Form { step: "set_queue_cpus", state: "queue_cpus", value: ["cpus", "cpus"], along: None },
    Form { step: "set_queue_flows", state: "queue_flows", value: ["flows", "flows"], along: None },
    Form { step: "set_route_metric", state: "route_metric", value: ["state", "state"], along: None },
    Form { step: "set_gso_max_segs", state: "gso_max_segs", value: ["segments", "segments"], along: None },
    Form { step: "set_root_qdisc", state: "root_qdisc", value: ["qdisc", "qdisc"], along: None },
    Form { step: "set_nic", state: "nic", value: ["value", "value"], along: Some("queues") },
    Form { step: "set_indirection", state: "indirection", value: ["table", "table"], along: None },
    Form { step: "set_rss_hash", state: "rss_hash", value: ["was", "is"], along: None },
    Form { step: "set_link_attribute", state: "link_attribute", value: ["value", "value"], along: None },
    Form { step: "set_debug", state: "debug", value: ["value", "value"], along: None },
    Form { step: "set_module", state: "module", value: ["value", "value"], along: None },
    Form { step: "set_irq_cpus", state: "irq_cpus", value: ["cpus", "cpus"], along: None },
];

/// Reads the lines of one journal, in their order.
#[derive(Default)]
pub(super) struct Reader {
    /// The header says that no line is of format 2.
    is_of_today: bool,
    /// The steps so far as they were written: what was read back does not say of which kind its step is.
    steps: BTreeMap<u64, Value>,
}

impl Reader {
    /// What a line says.
    pub(super) fn entry(&mut self, json: &str) -> serde_json::Result<Entry> {
        if self.is_of_today {
            return serde_json::from_str(json);
        }
        let mut line: Value = serde_json::from_str(json)?;
        self.translate(&mut line);
        let entry = Entry::deserialize(line)?;
        if let Entry::Header(header) = &entry {
            self.is_of_today = header.version == VERSION;
        }
        Ok(entry)
    }

    fn translate(&mut self, line: &mut Value) {
        if let Some(intent) = line.get_mut("intent") {
            let step = intent["placed"]["step"].clone();
            if let Some(state) = intent.get_mut("before") {
                translate_before(&step, state);
            }
            if let Some(seq) = intent["seq"].as_u64() {
                self.steps.insert(seq, step);
            }
        }
        if let Some(done) = line.get_mut("done") {
            let step = done["seq"].as_u64().and_then(|seq| self.steps.get(&seq));
            if let Some((step, state)) = step.zip(done.get_mut("after")) {
                translate_after(step, state);
            }
        }
    }
}

fn translate_before(step: &Value, state: &mut Value) {
    if let Some((master, old)) = step.get("set_link_master").zip(state.get("master")) {
        // The bridge was written by its index, and a port of another than the step's was refused.
        let value = if old["master"].is_null() { &Value::Null } else { &master["master"] };
        *state = json!({ "was": { "set_link_master": { "index": old["index"], "value": value } } });
    } else if let Some(held) = held(step, state, 0) {
        *state = json!({ "was": held });
    }
}

fn translate_after(step: &Value, state: &mut Value) {
    if let Some(held) = held(step, state, 1) {
        *state = json!({ "is": held });
        return;
    }
    let (Some(word), Some(value)) =
        (step.as_object().and_then(|step| step.keys().next()), asked(step, state))
    else {
        return;
    };
    *state = json!({ "is": { word: { "value": value } } });
}

/// What was read back of a step that got exactly what it asks for.
fn asked(step: &Value, state: &Value) -> Option<Value> {
    if let Some(master) = step.get("set_link_master").filter(|_| state.get("link").is_some()) {
        return Some(master["master"].clone());
    }
    if *state != json!("as_planned") {
        return None;
    }
    let is_on = step.get("set_link_up").or(step.get("set_hairpin")).map(|_| json!(true));
    is_on.or_else(|| Some(step.get("set_gso_max_segs")?["segments"].clone()))
}

/// What a register held, in the form of today; `None` for what is not in that of format 2.
fn held(step: &Value, state: &Value, time: usize) -> Option<Value> {
    let (form, asked) = FORMS.iter().find_map(|form| Some((form, step.get(form.step)?)))?;
    let old = state.get(form.state)?;
    let mut held = Map::new();
    if let Some(index) = old.get("index") {
        held.insert("index".to_owned(), index.clone());
    }
    let value = old.get(form.value[time]).cloned();
    let value = match form.step {
        "set_nic" => {
            let now = value.unwrap_or_default();
            json!({ "wanted": old.get("wanted").unwrap_or(&now), "now": now })
        }
        // What was read back was the step's, or an error.
        "set_link_mtu" => value.unwrap_or_else(|| asked["mtu"].clone()),
        // A queueing discipline of the kernel's own choice was left out.
        _ => value.unwrap_or_default(),
    };
    held.insert("value".to_owned(), value);
    if let Some(along) = form.along.and_then(|along| old.get(along)) {
        held.insert("along".to_owned(), along.clone());
    }
    Some(json!({ form.step: held }))
}

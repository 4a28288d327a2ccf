//! Pods that come to be ready, or the reason why they do not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::kubectl::{INTERRUPTED, Kubectl};
use super::manifests::{CONTAINER, LEASE};
use crate::Event;

/// How long pods are left alone between two looks at them.
const PAUSE: Duration = Duration::from_millis(250);
/// How long pods may take until they run: an image of 20 MB comes over a slow line.
const READY_MAX: Duration = Duration::from_secs(300);
/// A pod whose image cannot be pulled is tried again for so long: registries are out of reach for moments.
const PULLS_MAX: Duration = Duration::from_secs(20);
/// A pod that has no place waits so long for one: another pod may end.
const PLACE_MAX: Duration = Duration::from_secs(60);
/// After so long it is said what is waited for.
const SAYS_AFTER: Duration = Duration::from_secs(5);

/// Waits until so many pods of a namespace run, and returns them.
///
/// # Errors
/// Why one does not, in words: the scheduler's, the kubelet's or its own last.
pub(super) fn await_pods(
    kubectl: &Kubectl,
    awaited: (&str, usize),
    stop: &dyn Fn() -> bool,
    emit: &mut dyn FnMut(Event),
) -> Result<Vec<Value>, String> {
    await_each(kubectl, awaited, stop, emit, &mut |_, why| Err(why))
}

/// Waits until each of so many pods of a namespace runs, or will not. Returns those that run; `lost` hears the name of
/// each other one, and why it does not run.
///
/// # Errors
/// That of `lost`, or pods cannot be listed.
pub(super) fn await_each(
    kubectl: &Kubectl,
    (namespace, count): (&str, usize),
    stop: &dyn Fn() -> bool,
    emit: &mut dyn FnMut(Event),
    lost: &mut dyn FnMut(&str, String) -> Result<(), String>,
) -> Result<Vec<Value>, String> {
    let (mut watch, mut said, mut unborn) = (Watch::begin(), BTreeSet::new(), None);
    loop {
        let listed = kubectl.get(&["pods", "--namespace", namespace, "--selector=app=hostgap-race"])?;
        let look = watch.look(listed["items"].as_array().cloned().unwrap_or_default());
        for (pod, why) in look.lost {
            lost(&pod, why)?;
        }
        if look.waits.is_empty() && look.pods.len() + watch.lost.len() == count {
            return Ok(look.pods);
        }
        if stop() {
            return Err(INTERRUPTED.to_owned());
        }
        let waited = watch.began.elapsed();
        let is_short = look.waits.is_empty() && look.pods.len() + watch.lost.len() < count;
        if is_short && waited > SAYS_AFTER && unborn.is_none() {
            let why = unborn.insert(why_unborn(kubectl, namespace));
            emit(Event::AwaitingPod { why: why.clone() });
        }
        if waited > READY_MAX {
            let why = unborn.unwrap_or_else(|| "there are fewer pods than were created".to_owned());
            return Err(format!("after {} s {why}", waited.as_secs()));
        }
        if let Some(wait) = look.waits.first().filter(|_| waited > SAYS_AFTER)
            && said.insert(wait.cause())
        {
            emit(Event::AwaitingPod { why: wait.why.clone() });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why the pod of a Job is not there, which the cluster makes by itself and says in an event of the Job's.
fn why_unborn(kubectl: &Kubectl, namespace: &str) -> String {
    let of_job =
        format!("--field-selector=involvedObject.kind=Job,involvedObject.name={LEASE},reason=FailedCreate");
    // Reading events is no right that a race needs.
    let events = kubectl.get(&["events", "--namespace", namespace, &of_job]).unwrap_or_default();
    unborn(events["items"].as_array().map_or(&[], Vec::as_slice))
}

fn unborn(events: &[Value]) -> String {
    let last = events.iter().max_by_key(|event| event["lastTimestamp"].as_str());
    let last = last.and_then(|event| event["message"].as_str());
    let why = last.map_or_else(
        || "a quota, a limit or a policy of the namespace may refuse it (kubectl get events)".to_owned(),
        |message| format!("the cluster says: {message}"),
    );
    format!("the Job {LEASE} has no pod: {why}")
}

/// What was seen of pods so far.
struct Watch {
    began: Instant,
    /// Since when a pod waits for a kind of cause.
    since: BTreeMap<(String, Duration), Instant>,
    /// The names of the pods of the last look.
    known: BTreeSet<String>,
    /// The names of those that will not run.
    lost: BTreeSet<String>,
}

/// What is new, and what stands.
struct Look {
    /// The pods that are not lost.
    pods: Vec<Value>,
    /// What those of them wait for that do not run yet.
    waits: Vec<Waits>,
    /// Pods that were lost since the last look, by name, and why.
    lost: Vec<(String, String)>,
}

impl Watch {
    fn begin() -> Watch {
        let (since, known, lost) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Watch { began: Instant::now(), since, known, lost }
    }

    fn look(&mut self, mut pods: Vec<Value>) -> Look {
        let waited = self.began.elapsed();
        let names: BTreeSet<String> = pods.iter().map(|pod| name_of(pod).to_owned()).collect();
        let deleted = self.known.difference(&names).filter(|gone| !self.lost.contains(*gone));
        let mut lost: Vec<(String, String)> =
            deleted.map(|gone| (gone.clone(), format!("pod {gone}: it was deleted"))).collect();
        self.known = names;
        pods.retain(|pod| !self.lost.contains(name_of(pod)));
        let mut waits: Vec<Waits> = pods.iter().filter_map(waits).collect();
        // The words for one cause change from look to look.
        self.since.retain(|cause, _| waits.iter().any(|wait| wait.cause() == *cause));
        for wait in &waits {
            let since = self.since.entry(wait.cause()).or_insert_with(Instant::now);
            if since.elapsed() > wait.patience || waited > READY_MAX {
                lost.push((wait.pod.clone(), format!("after {} s {}", waited.as_secs(), wait.why)));
            }
        }
        self.lost.extend(lost.iter().map(|(pod, _)| pod.clone()));
        pods.retain(|pod| !self.lost.contains(name_of(pod)));
        waits.retain(|wait| !self.lost.contains(&wait.pod));
        Look { pods, waits, lost }
    }
}

/// The name of an object of the API; empty if it has none.
pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Why a pod does not run yet.
struct Waits {
    pod: String,
    why: String,
    /// How long it may.
    patience: Duration,
}

impl Waits {
    /// The pod, and what kind of cause it is.
    fn cause(&self) -> (String, Duration) {
        (self.pod.clone(), self.patience)
    }
}

/// Why a pod does not run; `None`: it does.
fn waits(pod: &Value) -> Option<Waits> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = name_of(pod);
    let says = |patience: Duration, what: String| {
        Some(Waits { pod: name.to_owned(), why: format!("pod {name}: {what}"), patience })
    };
    if let Some(why) = gone(pod) {
        return says(Duration::ZERO, why);
    }
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let unscheduled = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    if let Some(condition) = unscheduled {
        let message = text(&condition["message"]);
        let remedy = match message.contains("Insufficient cpu") {
            true => "; let pods share the CPUs of their nodes (--best-effort), or race on others (--nodes)",
            false => "",
        };
        return says(PLACE_MAX, format!("the scheduler says: {}{remedy}", message.trim_end_matches('.')));
    }
    let containers = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    for container in &containers {
        let waiting = &container["state"]["waiting"];
        let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
        let what = if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") };
        match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" => {
                let remedy = "push the image where its nodes find it (cargo xtask image; --image names it), or race with --copy";
                return says(PULLS_MAX, format!("{what}; {remedy}"));
            }
            "InvalidImageName"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => {
                return says(PULLS_MAX, what);
            }
            _ => {}
        }
    }
    let ready = containers.iter().filter(|container| container["ready"] == true).count();
    let all = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    if pod["status"]["phase"] == "Running" && ready == all {
        return None;
    }
    says(READY_MAX, format!("{ready} of {all} containers are ready"))
}

/// Why a pod is no more, if it is not.
pub(super) fn gone(pod: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut evicted = conditions.filter(|one| one["type"] == "DisruptionTarget" && one["status"] == "True");
    if let Some(why) = evicted.find_map(|one| text(&one["message"])) {
        return Some(why);
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Some("it is being deleted".to_owned());
    }
    let phase = status["phase"].as_str().filter(|phase| ["Failed", "Succeeded"].contains(phase))?;
    let why = [&status["reason"], &status["message"]].into_iter().filter_map(text);
    let own = status["containerStatuses"].as_array().into_iter().flatten();
    let own = own.filter(|container| container["name"] == CONTAINER).filter_map(|container| {
        let ended = &container["state"]["terminated"];
        Some(format!("it ended with {} ({})", ended["exitCode"].as_i64()?, text(&ended["reason"])?))
    });
    let why: Vec<String> = why.chain(own).collect();
    Some(if why.is_empty() { phase.to_lowercase() } else { why.join(": ") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(status: &Value) -> Option<String> {
        let spec = json!({ "containers": [{ "name": CONTAINER }] });
        waits(&json!({ "metadata": { "name": "server-pod" }, "spec": spec, "status": status }))
            .map(|wait| wait.why)
    }

    #[test]
    fn a_pod_that_does_not_run_says_why_in_the_words_of_who_knows() {
        let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
            "message": "0/2 nodes are available: 2 Insufficient cpu." }] });
        let said = why(&unscheduled).unwrap();
        let expected = "the scheduler says: 0/2 nodes are available: 2 Insufficient cpu; let pods share the CPUs of their \
                        nodes (--best-effort), or";
        assert!(said.contains(expected), "{said}");
        let tainted = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
            "message": "0/1 nodes are available: 1 node(s) were unschedulable." }] });
        let said = why(&tainted).unwrap();
        assert!(
            said.ends_with("the scheduler says: 0/1 nodes are available: 1 node(s) were unschedulable"),
            "{said}"
        );
        let unpulled = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting": {
            "reason": "ErrImagePull", "message": "not found" } } }] });
        let said = why(&unpulled).unwrap();
        assert!(said.contains("ErrImagePull: not found; push the image"), "{said}");
        let ended = json!({ "phase": "Failed", "containerStatuses": [{ "name": CONTAINER,
            "state": { "terminated": { "exitCode": 1, "reason": "Error" } } }] });
        assert_eq!(why(&ended).unwrap(), "pod server-pod: it ended with 1 (Error)");
        let drained = json!({ "phase": "Running", "conditions": [{ "type": "DisruptionTarget", "status": "True",
            "message": "Eviction API: evicting" }] });
        assert_eq!(why(&drained).unwrap(), "pod server-pod: Eviction API: evicting");
        let runs = json!({ "phase": "Running", "containerStatuses": [{ "ready": true, "state": {} }] });
        assert_eq!(why(&runs), None);
        assert_eq!(
            why(&json!({ "phase": "Pending" })).unwrap(),
            "pod server-pod: 0 of 1 containers are ready"
        );
    }

    #[test]
    fn a_pod_that_may_not_begin_has_the_reason_from_its_job() {
        let events = [
            json!({ "lastTimestamp": "2026-11-30T10:00:02Z", "message": "pods \"a\" is forbidden: exceeded quota: team" }),
            json!({ "lastTimestamp": "2026-11-30T10:00:01Z", "message": "an earlier race's" }),
        ];
        let said = unborn(&events);
        assert!(
            said.ends_with("has no pod: the cluster says: pods \"a\" is forbidden: exceeded quota: team")
        );
        assert!(unborn(&[]).contains("may refuse it"));
    }

    #[test]
    fn a_pod_that_is_lost_is_said_once_and_the_others_go_on() {
        let pod = |name: &str, status: Value| {
            let spec = json!({ "containers": [{ "name": CONTAINER }] });
            json!({ "metadata": { "name": name }, "spec": spec, "status": status })
        };
        let runs = || pod("a", json!({ "phase": "Running", "containerStatuses": [{ "ready": true }] }));
        let evicted = || pod("b", json!({ "phase": "Failed", "reason": "Evicted" }));
        let starts = || pod("c", json!({ "phase": "Pending" }));
        let mut watch = Watch::begin();
        let mut seen = watch.look(vec![runs(), evicted(), starts()]);
        while seen.lost.is_empty() {
            seen = watch.look(vec![runs(), evicted(), starts()]);
        }
        assert_eq!(seen.lost, [("b".to_owned(), "after 0 s pod b: Evicted".to_owned())]);
        assert_eq!((seen.pods.len(), seen.waits.len()), (2, 1));
        let after = watch.look(vec![runs()]);
        assert_eq!(after.lost, [("c".to_owned(), "pod c: it was deleted".to_owned())]);
        assert_eq!((after.pods.len(), after.waits.len(), watch.lost.len()), (1, 0, 2));
    }
}

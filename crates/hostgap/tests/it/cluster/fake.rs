//! Races and looks in a cluster that a shell script plays in the place of `kubectl`: it refuses, fails and hangs as a
//! real cluster rarely does.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sandbox::{HOSTGAP, check, json, kill, stderr, stdout, until};

/// What the script does by itself. It keeps each command line in `calls`, and what is created in `created-0` and so on.
const SCRIPT: &str = r#"
get*" nodes") cat "$dir/nodes" ;;
create*) cat >"$dir/created-$(created)" ;;
get*" pods --namespace "*)
    case $(created) in
    0) echo '{ "items": [] }' ;;
    1) cat "$dir/guard" ;;
    *) cat "$dir/pods" ;;
    esac ;;
get*" pods,services "*) echo '{ "items": [] }' ;;
get*" job "* | get*" namespace "*)
    [ $(created) = 0 ] || echo "{ \"metadata\": { \"uid\": \"1\", \"annotations\": { $(run) } } }" ;;
attach*) read hold; echo held; cat >"$dir/held" ;;
exec*) echo '{ "findings": [], "warnings": 0, "not_judged": [], "unseen": [] }' ;;
delete*) rm -f "$dir"/created-* ;;
*) echo "the script does not know: $*" >&2; exit 1 ;;
"#;

/// A cluster of a script.
struct Fake {
    dir: TempDir,
}

impl Fake {
    /// With nodes, with pods beside the guard, and with rules that come before those of the script, as `case` has them.
    fn new(nodes: &[Value], pods: &[Value], rules: &str) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let guard = pod("hostgap-race-x", &runs());
        let list = |items: &[Value]| json!({ "items": items }).to_string();
        let all = [std::slice::from_ref(&guard), pods].concat();
        let script = format!(
            "dir=${{0%/*}}\n\
             created() {{ ls \"$dir\" | grep -c '^created-'; }}\n\
             run() {{ grep -o '\"hostgap/run\":\"[0-9]*\"' \"$dir/created-0\" | head -n 1; }}\n\
             echo \"$*\" >>\"$dir/calls\"\n\
             case \"$*\" in\n{rules}{SCRIPT}esac\n"
        );
        let files =
            [("nodes", list(nodes)), ("guard", list(&[guard])), ("pods", list(&all)), ("kubectl", script)];
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Fake { dir }
    }

    /// A cluster of two nodes, which only says no.
    fn refusing(rules: &str) -> Fake {
        Fake::new(&[node("a"), node("b")], &[], rules)
    }

    fn command(&self, command: &str, args: &[&str]) -> Command {
        let mut hostgap = Command::new(HOSTGAP);
        hostgap.args([command, "--kube", "--kubectl", &format!("sh {}/kubectl", self.dir.path().display())]);
        hostgap.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        hostgap
    }

    fn doctor(&self, args: &[&str]) -> Command {
        self.command("doctor", &[&["--for", "0.1s"], args].concat())
    }

    fn race(&self, out: &Path, args: &[&str]) -> Command {
        self.command("race", &[&["--rounds", "1", "--out", out.to_str().unwrap()], args].concat())
    }

    /// The command lines so far that begin with a word.
    fn calls(&self, verb: &str) -> Vec<String> {
        let calls = std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.lines().filter(|call| call.starts_with(verb)).map(str::to_owned).collect()
    }
}

fn node(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {}, "status": {
        "conditions": [{ "type": "Ready", "status": "True" }],
        "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
    } })
}

fn pod(name: &str, status: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "hostgap" }] }, "status": status })
}

fn runs() -> Value {
    json!({ "phase": "Running", "containerStatuses": [{ "name": "hostgap", "ready": true }] })
}

/// The nodes of a diagnosis, each with whether it was looked at, or why not.
#[track_caller]
fn looked(output: &Output) -> Vec<(String, String)> {
    let diagnosis = json(output);
    let nodes = diagnosis["nodes"].as_array().unwrap();
    let seen = |node: &Value| {
        assert_eq!(node["diagnosis"].is_object(), node["failed"].is_null(), "{node}");
        let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
        (text("node"), text("failed"))
    };
    nodes.iter().map(seen).collect()
}

/// As [`looked`] returns it.
fn nodes_are(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(node, why)| ((*node).to_owned(), (*why).to_owned())).collect()
}

#[test]
fn a_look_at_a_node_that_hangs_can_be_interrupted() {
    // Copying hangs as well as looking.
    for args in [&[][..], &["--copy", "busybox"]] {
        let fake = Fake::new(
            &[node("a")],
            &[pod("look-a", &runs())],
            "exec*look-a*) sleep 86397 ;;\nexec*) cat >/dev/null ;;\n",
        );
        let doctor = fake.doctor(args).spawn().unwrap();
        until("it looks", || fake.calls("exec").iter().any(|call| call.contains("look-a")));
        kill(doctor.id(), Signal::INT);
        check(&doctor.wait_with_output().unwrap(), 130, "");
        assert_eq!(fake.calls("delete").len(), 1);
    }
}

#[test]
fn what_another_race_has_made_is_not_deleted() {
    let quota = "create*) cat >/dev/null
        echo 'Error from server (Forbidden): error when creating \"STDIN\": jobs.batch \"hostgap-race\" is forbidden: \
        exceeded quota: one, requested: count/jobs.batch=1, used: count/jobs.batch=1' >&2; exit 1 ;;";
    for owner in ["", r#""hostgap/run": "no number of ours""#] {
        let theirs = format!(
            "{quota}\nget*\" job \"*) echo '{{ \"metadata\": {{ \"annotations\": {{ {owner} }} }} }}' ;;"
        );
        let fake = Fake::refusing(&theirs);
        let out = tempfile::tempdir().unwrap();
        let raced = fake.race(out.path(), &["--namespace", "perf"]).output().unwrap();
        check(&raced, 1, "exceeded quota");
        assert_eq!(fake.calls("delete"), Vec::<String>::new());
    }
}

#[test]
fn without_the_right_to_create_nothing_is_deleted() {
    let no = |verb: &str, resource: &str| {
        format!(
            "echo 'Error from server (Forbidden): {resource} is forbidden: User \"u\" cannot {verb} resource \
             \"{resource}\" in API group \"\" at the cluster scope' >&2; exit 1 ;;\n"
        )
    };
    // Of a user who may make a namespace and nothing in it, and may not take it away.
    for (refused, deletes) in [("namespaces", 0), ("rolebindings", 1)] {
        let rules = [
            format!("create*) cat >\"$dir/created-0\"; {}", no("create", refused)),
            format!("get*\" namespace \"*) {}", no("get", "namespaces")),
            format!("delete*) {}", no("delete", "namespaces")),
        ];
        let fake = Fake::refusing(&rules.concat());
        let out = tempfile::tempdir().unwrap();
        let raced = fake.race(out.path(), &[]).output().unwrap();
        let said = check(&raced, 4, &format!("cannot create resource \"{refused}\""));
        assert!(said.contains("--show-manifests prints the rights"), "{said}");
        assert_eq!(said.contains("hint: sh "), deletes > 0, "{said}");
        assert_eq!((fake.calls("delete").len(), fake.calls("get").len()), (deletes, 1 + deletes), "{said}");
    }
}

#[test]
fn without_kubectl_there_is_no_race_in_a_cluster() {
    let out = tempfile::tempdir().unwrap();
    let mut race = Command::new(HOSTGAP);
    race.args(["race", "--kube", "--kubectl", "/no/kubectl", "--out"]).arg(out.path());
    let said = check(&race.output().unwrap(), 4, "use the cluster: start /no/kubectl: No such file");
    assert!(said.contains("hint: install kubectl, or name it with --kubectl"), "{said}");
}

#[test]
fn what_cannot_be_deleted_does_not_hide_the_diagnosis() {
    let no = "delete*) echo 'Error from server (Forbidden): namespaces is forbidden' >&2; exit 1 ;;\n";
    let fake = Fake::new(&[node("a")], &[pod("look-a", &runs())], no);
    let output = fake.doctor(&["--json"]).output().unwrap();
    let said = check(&output, 0, "could not delete what was made in namespace hostgap-look-");
    assert!(said.contains("/kubectl delete namespace hostgap-look-"), "{said}");
    assert_eq!(looked(&output), nodes_are(&[("a", "")]));
}

#[test]
fn an_interrupt_ends_the_wait_for_a_cluster_that_is_away() {
    let away = "delete*) echo 'The connection to the server was refused' >&2; exit 1 ;;\n";
    let fake = Fake::new(&[node("a")], &[pod("look-a", &runs())], away);
    let doctor = fake.doctor(&["--json"]).spawn().unwrap();
    until("it tries again", || fake.calls("delete").len() > 1);
    kill(doctor.id(), Signal::INT);
    let output = doctor.wait_with_output().unwrap();
    check(&output, 0, "it was interrupted: The connection to the server was refused");
    assert_eq!(looked(&output), nodes_are(&[("a", "")]));
}

#[test]
fn a_node_whose_pod_does_not_start_is_named_and_the_others_are_diagnosed() {
    let full =
        json!({ "phase": "Failed", "reason": "Evicted", "message": "the node was low on resource: storage" });
    let pods = [pod("look-a", &runs()), pod("look-b", &full), pod("look-c", &runs())];
    let fake = Fake::new(&[node("a"), node("b"), node("c")], &pods, "");
    let output = fake.doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let mut seen = looked(&output);
    let (_, why) = seen.remove(1);
    assert_eq!(seen, nodes_are(&[("a", ""), ("c", "")]));
    assert!(why.contains("pod look-b: Evicted: the node was low on resource"), "{why}");
    assert_eq!(fake.calls("delete").len(), 1);

    let said = stdout(&fake.doctor(&[]).output().unwrap());
    assert!(said.starts_with("2 of 3 nodes: no warning"), "{said}");
}

#[test]
fn a_guard_that_does_not_start_is_tried_on_another_node() {
    let failed =
        json!({ "items": [pod("hostgap-race-x", &json!({ "phase": "Failed", "reason": "Evicted" }))] });
    let on_a = format!(
        "get*\" pods --namespace \"*) grep -q '\"values\":\\[\"a\"\\]' \"$dir/created-0\" && echo '{failed}' ||
         case $(created) in 1) cat \"$dir/guard\" ;; *) cat \"$dir/pods\" ;; esac ;;"
    );
    let pods = [pod("look-a", &runs()), pod("look-b", &runs())];
    let fake = Fake::new(&[node("a"), node("b")], &pods, &on_a);
    let output = fake.doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(looked(&output), nodes_are(&[("a", ""), ("b", "")]));
    assert!(stderr(&output).contains("on node b, as that on a did not start: "), "{}", stderr(&output));
    assert_eq!(fake.calls("delete").len(), 2);
}

#[test]
fn a_cordoned_node_is_looked_at_and_one_that_is_not_ready_is_named() {
    let mut nodes = ["cordoned", "lost", "w", "a"].map(node);
    nodes[0]["spec"]["unschedulable"] = json!(true);
    nodes[1]["status"]["conditions"][0]["status"] = json!("Unknown");
    nodes[2]["metadata"]["labels"] = json!({ "kubernetes.io/os": "windows" });
    let pods = ["look-cordoned", "look-a"].map(|name| pod(name, &runs()));
    let fake = Fake::new(&nodes, &pods, "");
    for names in [&[][..], &["--nodes", "cordoned,lost,a"]] {
        let output = fake.doctor(&[&["--json"], names].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert_eq!(looked(&output), nodes_are(&[("cordoned", ""), ("lost", "it is not ready"), ("a", "")]));
        let left_out = stderr(&output).contains("without node w: it runs windows");
        assert_eq!(left_out, names.is_empty(), "{}", stderr(&output));
    }
}

/// A name too few or too many is wrong whatever the cluster has, so that it is not asked; one that is not there is
/// wrong, too.
#[test]
fn nodes_that_are_not_the_ends_of_a_race_are_bad_input() {
    let (fake, out) = (Fake::refusing(""), tempfile::tempdir().unwrap());
    for (args, says) in [
        (
            &["--nodes", "a"][..],
            "--nodes a: a race is from one node to another, and this names one: name the server's too",
        ),
        (&["--nodes", "a,b", "--same-node"], "--nodes a,b: with --same-node both pods are on one node"),
        (&["--nodes", "a,b,c"], "race every pair of them with --all-pairs"),
        (&["--nodes", "a", "--all-pairs"], "--nodes a: a race of all pairs needs two nodes"),
    ] {
        check(&fake.race(out.path(), args).output().unwrap(), 2, says);
    }
    assert_eq!(fake.calls(""), [] as [String; 0]);
    for args in
        [&["--nodes", "a,x"][..], &["--nodes", "x", "--same-node"], &["--nodes", "a,x", "--all-pairs"]]
    {
        check(&fake.race(out.path(), args).output().unwrap(), 2, "there is no node \"x\"; there are a, b");
    }
    assert_eq!(fake.calls("create"), [] as [String; 0]);
}

/// A Secret in another namespace, and all that is made, which is kept when it is deleted.
const REGISTRY: &str = r#"
get*" secret regcred --namespace build")
    echo '{ "type": "kubernetes.io/dockerconfigjson", "data": { ".dockerconfigjson": "b3BlbiBzZXNhbWU=" } }' ;;
get*" secret "*" --namespace build") [ "${*#*opaque}" = "$*" ] || echo '{ "type": "Opaque", "data": {} }' ;;
create*) cat >"$dir/created-$(created)"; cat "$dir"/created-* >"$dir/made" ;;
"#;

#[test]
fn the_secret_of_a_registry_is_copied_into_the_namespace_that_is_made() {
    let fake = Fake::new(&[node("a")], &[pod("look-a", &runs())], REGISTRY);
    let made = || std::fs::read_to_string(fake.dir.path().join("made")).unwrap_or_default();
    let of = |named: &str| fake.doctor(&["--image-pull-secret", named]).output().unwrap();
    check(&of("build/none"), 2, "there is no Secret build/none");
    check(&of("build/opaque"), 2, "Secret build/opaque is of type \"Opaque\"");
    check(&of("regcred"), 2, "--image-pull-secret regcred: a namespace that is made has no Secret yet");
    assert_eq!(made(), "", "nothing is made without it");

    check(&of("build/regcred"), 0, "");
    let lists =
        serde_json::Deserializer::from_str(&made()).into_iter::<Value>().collect::<Result<Vec<_>, _>>();
    let objects: Vec<Value> =
        lists.unwrap().iter().flat_map(|list| list["items"].as_array().unwrap().clone()).collect();
    let copy = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(
        (&copy["metadata"]["name"], &copy["data"][".dockerconfigjson"]),
        (&json!("regcred"), &json!("b3BlbiBzZXNhbWU="))
    );
    assert_eq!(copy["metadata"]["namespace"], objects[0]["metadata"]["name"], "{copy}");
    let secrets = json!([{ "name": "regcred" }]);
    let guard = objects.iter().find(|object| object["kind"] == "Job").unwrap();
    let pod = objects.iter().find(|object| object["kind"] == "Pod").unwrap();
    assert_eq!(guard["spec"]["template"]["spec"]["imagePullSecrets"], secrets);
    assert_eq!(pod["spec"]["imagePullSecrets"], secrets);
    // In a namespace that is there nothing is read or copied.
    let reads = fake.calls("get").len();
    check(&fake.doctor(&["--image-pull-secret", "regcred", "--namespace", "race"]).output().unwrap(), 0, "");
    assert!(
        made().contains("\"imagePullSecrets\":[{\"name\":\"regcred\"}]") && !made().contains("\"Secret\"")
    );
    let later = &fake.calls("get")[reads..];
    assert!(later.iter().all(|call| !call.contains(" secret ")), "{later:?}");
}

#[test]
fn shown_manifests_have_the_rights_to_copy_a_secret_and_not_what_it_says() {
    let (fake, out) = (Fake::new(&[node("a"), node("b")], &[], REGISTRY), tempfile::tempdir().unwrap());
    let show = |args: &[&str]| {
        let shown = fake.race(out.path(), &[&["--show-manifests"], args].concat()).output().unwrap();
        json(&shown)["items"].as_array().unwrap().clone()
    };
    let rules = |items: &[Value], kind: &str, namespace: Value| -> Vec<Value> {
        let role = |item: &&Value| item["kind"] == kind && item["metadata"]["namespace"] == namespace;
        let rules = items.iter().filter(role).flat_map(|role| role["rules"].as_array().unwrap().clone());
        rules.filter(|rule| rule["resources"] == json!(["secrets"])).collect()
    };
    let items = show(&["--image-pull-secret", "build/regcred"]);
    let rule = |verb: &str| json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": [verb] });
    assert_eq!(rules(&items, "ClusterRole", Value::Null), [rule("create")]);
    let mut get = rule("get");
    get["resourceNames"] = json!(["regcred"]);
    assert_eq!(rules(&items, "Role", json!("build")), [get]);
    let copy = items.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!((copy["metadata"]["name"].as_str(), &copy["data"]), (Some("regcred"), &Value::Null));
    assert!(fake.calls("get").iter().all(|call| !call.contains(" secret ")), "it is not even read");
    for args in [&[][..], &["--namespace", "race", "--image-pull-secret", "regcred"]] {
        let items = show(args);
        assert!(items.iter().all(|object| object["kind"] != "Secret"));
        let all = [rules(&items, "ClusterRole", Value::Null), rules(&items, "Role", json!("race"))].concat();
        assert_eq!(all, [] as [Value; 0], "{args:?}");
    }
}

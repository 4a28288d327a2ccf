//! A namespace with what was made in it, and the lease by which all of it goes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::hands::{copy, hold_lease};
use super::kubectl::Kubectl;
use super::manifests::{LEASE, Manifests, owned};
use super::ready::{await_pods, name_of};
use crate::channel::Channel;
use crate::{Event, LabError, OwnProgram};

/// How long Kubernetes may take to delete everything.
const GONE_MAX: Duration = Duration::from_secs(180);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(250);

/// A namespace with what was made in it. Struck or dropped, all of it goes.
pub(super) struct LeasedNamespace<'a> {
    pub(super) kubectl: &'a Kubectl,
    pub(super) manifests: Manifests<'a>,
    /// While it lives, so does all that was made. It is never asked anything.
    lease: Option<Mutex<Channel>>,
    stands: bool,
}

impl<'a> LeasedNamespace<'a> {
    /// Makes nothing in the cluster yet.
    pub(super) fn new(kubectl: &'a Kubectl, manifests: Manifests<'a>) -> LeasedNamespace<'a> {
        LeasedNamespace { kubectl, manifests, lease: None, stands: false }
    }

    /// Makes the namespace and these objects in it, waits until all pods run, and holds the lease. Returns the pods. That of
    /// the lease is first, on this node, and held before there is anything else to leave behind.
    pub(super) fn make(
        &mut self,
        node: &str,
        objects: Vec<Value>,
        own: &OwnProgram,
        stop: &dyn Fn() -> bool,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Vec<Value>, LabError> {
        let (kubectl, namespace) = (self.kubectl, self.manifests.namespace);
        let failed = |why: String| kubectl.failed(why);
        let pods = objects.iter().filter(|object| object["kind"] == "Pod").count();
        emit(Event::Pitching { namespace: namespace.to_owned(), pods });
        self.stands = true;
        // In one command, which goes on if this process is killed: there is nothing without a guard.
        if let Err(why) = kubectl.create(&self.manifests.ground(node)) {
            let is_taken = why.contains("AlreadyExists") || why.contains("already exists");
            // What another race has made is not this one's to delete.
            self.stands = !is_taken;
            let whose = format!("another race is in namespace {namespace}: {why}");
            return Err(failed(if is_taken { whose } else { why }));
        }
        let content = match self.manifests.copies {
            true => Some(std::fs::read(&own.program).map_err(LabError::file("read", &own.program))?),
            false => None,
        };
        let guards = await_pods(kubectl, (namespace, 1), stop, emit).map_err(failed)?;
        let guard = name_of(&guards[0]);
        self.equip(guard, content.as_deref())?;
        self.lease = Some(Mutex::new(hold_lease(kubectl, namespace, guard).map_err(failed)?));
        let job = kubectl.get(&["job", LEASE, "--namespace", namespace]).map_err(failed)?;
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
        let objects: Vec<Value> = objects.into_iter().map(|object| owned(object, uid)).collect();
        kubectl.create(&objects).map_err(failed)?;
        let mut ready = await_pods(kubectl, (namespace, pods + 1), stop, emit).map_err(failed)?;
        ready.retain(|pod| name_of(pod) != guard);
        ready.iter().try_for_each(|pod| self.equip(name_of(pod), content.as_deref()))?;
        Ok(ready)
    }

    /// Copies the program into a pod that does not have it.
    fn equip(&self, pod: &str, content: Option<&[u8]>) -> Result<(), LabError> {
        let Some(content) = content else { return Ok(()) };
        let copied = copy(self.kubectl, self.manifests.namespace, pod, content);
        copied.map_err(|why| self.kubectl.failed(format!("pod {pod}: {why}")))
    }

    /// Deletes everything, and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub(super) fn strike(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.stands) {
            return Ok(());
        }
        let deleted = self.delete();
        // The pod at its other end is gone, or goes for this.
        drop(self.lease.take());
        let namespace = self.manifests.namespace;
        deleted.map_err(|why| self.kubectl.failed(format!("delete what was made in {namespace}: {why}")))
    }

    /// Deletes what owns everything, and waits until all of it is gone. kubectl would wait by a watch, to which not all have
    /// the right.
    fn delete(&self) -> Result<(), String> {
        let namespace = self.manifests.namespace;
        let object: &[&str] = match self.manifests.owns_namespace {
            true => &["namespace", namespace],
            false => &["job", LEASE, "--namespace", namespace],
        };
        let until = Instant::now() + GONE_MAX;
        let again = |why: String| if Instant::now() > until { Err(why) } else { Ok(()) };
        // An API server that restarts is back soon.
        while let Err(why) =
            self.kubectl.output(&[&["delete"], object, &["--ignore-not-found", "--wait=false"]].concat(), &[])
        {
            again(why)?;
            std::thread::sleep(PAUSE);
        }
        loop {
            match self.is_gone(object) {
                Ok(true) => return Ok(()),
                Ok(false) => again(format!("it is still there after {} s", GONE_MAX.as_secs()))?,
                Err(why) => again(why)?,
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// What the owner owns goes after it.
    fn is_gone(&self, owner: &[&str]) -> Result<bool, String> {
        if self.kubectl.find(owner)?.is_some() {
            return Ok(false);
        }
        if self.manifests.owns_namespace {
            return Ok(true);
        }
        let labelled =
            ["pods,services", "--namespace", self.manifests.namespace, "--selector=app=hostgap-race"];
        let left = self.kubectl.get(&labelled)?;
        Ok(left["items"].as_array().is_none_or(Vec::is_empty))
    }
}

impl Drop for LeasedNamespace<'_> {
    fn drop(&mut self) {
        // Something stands here only on an error, whose own message matters more; the lease's end removes it too.
        let _ = self.strike();
    }
}

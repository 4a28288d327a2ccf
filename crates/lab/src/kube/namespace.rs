//! A namespace with what was made in it, and the lease by which all of it goes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::access::ClusterAccess;
use super::kubectl::{ANSWER_MAX, INTERRUPTED, Kubectl, is_forbidden};
use super::manifests::{AFTER_NAMESPACE, LEASE, Manifests, owned};
use super::pod_process::{copy, hold_lease};
use super::ready::{await_each, await_pods, name_of};
use crate::channel::Channel;
use crate::{Event, LabError};

/// How long Kubernetes may take to delete everything.
const GONE_MAX: Duration = Duration::from_secs(180);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(250);

/// A namespace with what was made in it. [`LeasedNamespace::remove`] deletes all of it, and so does dropping it.
pub(super) struct LeasedNamespace<'a> {
    pub(super) access: &'a ClusterAccess,
    pub(super) manifests: Manifests<'a>,
    /// What is copied into pods whose image does not have it; read when the first is made.
    program: Option<Vec<u8>>,
    /// The name of the pod at the other end of the lease.
    guard: String,
    /// While it lives, so does all that was made. It is never asked anything.
    lease: Option<Mutex<Channel>>,
    /// Something may have been made that is not deleted yet.
    stands: bool,
}

impl<'a> LeasedNamespace<'a> {
    /// Makes nothing in the cluster yet.
    pub(super) fn new(access: &'a ClusterAccess, manifests: Manifests<'a>) -> LeasedNamespace<'a> {
        LeasedNamespace { access, manifests, program: None, guard: String::new(), lease: None, stands: false }
    }

    pub(super) fn kubectl(&self) -> &'a Kubectl {
        &self.access.kubectl
    }

    /// Makes the namespace and these objects in it, waits until all pods run, and holds the lease. Returns the pods.
    /// That of the lease is first, on this node, and held before there is anything else to leave behind.
    pub(super) fn make(
        &mut self,
        node: &str,
        objects: Vec<Value>,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Vec<Value>, LabError> {
        let pods = objects.iter().filter(|object| object["kind"] == "Pod").count();
        emit(Event::CreatingPods { namespace: self.manifests.namespace.to_owned(), pods });
        self.create_ground(node)?;
        let made = self.await_guard(emit).and_then(|()| {
            let ready = self.fill(objects, emit, &mut |_, why| Err(why))?;
            ready.iter().try_for_each(|pod| self.equip(name_of(pod)))?;
            Ok(ready)
        });
        made.map_err(|why| self.kubectl().failed(why))
    }

    /// Creates the namespace, if it is to be made, and the Job whose pod guards it, on this node.
    pub(super) fn create_ground(&mut self, node: &str) -> Result<(), LabError> {
        if self.manifests.copies {
            let program = &self.access.own.program;
            self.program = Some(std::fs::read(program).map_err(LabError::file("read", program))?);
        }
        let mut ground = self.manifests.ground(node);
        if let Some(secret) = &self.access.pull_secret {
            let copy = secret.copied(self.kubectl(), &self.manifests)?;
            copy.into_iter().for_each(|copy| ground.insert(AFTER_NAMESPACE, copy));
        }
        self.stands = true;
        // In one command, which goes on if this process is killed: there is nothing without a guard.
        let created = self.kubectl().create(&ground);
        created.map_err(|why| {
            // The words of `ForbiddenMessage` in the API server's handlers/responsewriters/errors.go.
            let refused = format!("cannot create resource {:?}", self.manifests.owner_resource());
            self.stands = !why.contains(&refused);
            let is_taken = why.contains("AlreadyExists") || why.contains("already exists");
            let whose = format!("another race is in namespace {}: {why}", self.manifests.namespace);
            self.kubectl().failed(if is_taken { whose } else { why })
        })
    }

    /// Waits until the guard runs, and holds the lease.
    pub(super) fn await_guard(&mut self, emit: &mut dyn FnMut(Event)) -> Result<(), String> {
        let namespace = self.manifests.namespace;
        let stop = || self.access.is_stopped();
        let guards = await_pods(self.kubectl(), (namespace, 1), &stop, emit)?;
        self.guard = name_of(&guards[0]).to_owned();
        self.equip(&self.guard)?;
        self.lease = Some(Mutex::new(hold_lease(self.kubectl(), namespace, &self.guard)?));
        Ok(())
    }

    /// Creates objects that go with the guard, and waits until each pod of them runs or will not; `lost` hears of
    /// those, and its error ends the wait. Returns those that run.
    pub(super) fn fill(
        &self,
        objects: Vec<Value>,
        emit: &mut dyn FnMut(Event),
        lost: &mut dyn FnMut(&str, String) -> Result<(), String>,
    ) -> Result<Vec<Value>, String> {
        let namespace = self.manifests.namespace;
        let pods = objects.iter().filter(|object| object["kind"] == "Pod").count();
        let job = self.kubectl().get(&["job", LEASE, "--namespace", namespace])?;
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
        let objects: Vec<Value> = objects.into_iter().map(|object| owned(object, uid)).collect();
        self.kubectl().create(&objects)?;
        let stop = || self.access.is_stopped();
        // All others go with the guard.
        let mut lost = |pod: &str, why: String| if pod == self.guard { Err(why) } else { lost(pod, why) };
        let mut ready = await_each(self.kubectl(), (namespace, pods + 1), &stop, emit, &mut lost)?;
        ready.retain(|pod| name_of(pod) != self.guard);
        Ok(ready)
    }

    /// Copies the program into a pod, if its image does not have it.
    pub(super) fn equip(&self, pod: &str) -> Result<(), String> {
        let Some(program) = &self.program else { return Ok(()) };
        let copied = copy(self.kubectl(), (self.manifests.namespace, pod), program, &self.access.stop);
        copied.map_err(|why| format!("pod {pod}: {why}"))
    }

    /// Deletes everything, and waits until it is gone. What cannot be deleted is an event: the result of a race does
    /// not depend on it.
    pub(super) fn remove(&mut self, emit: &mut dyn FnMut(Event)) {
        if !std::mem::take(&mut self.stands) {
            return;
        }
        let deleted = self.delete();
        // The pod at its other end is gone, or goes for this.
        drop(self.lease.take());
        if let Err(why) = deleted {
            let command = self.kubectl().typed(&[&["delete"], &self.owner()[..]].concat());
            let namespace = self.manifests.namespace.to_owned();
            emit(Event::NotDeleted { namespace, why, command });
        }
    }

    /// What owns everything, as kubectl names it.
    fn owner(&self) -> Vec<&'a str> {
        match self.manifests.owns_namespace {
            true => vec!["namespace", self.manifests.namespace],
            false => vec!["job", LEASE, "--namespace", self.manifests.namespace],
        }
    }

    /// Deletes what owns everything, and waits until all of it is gone. kubectl would wait by a watch, to which not
    /// all have the right.
    fn delete(&self) -> Result<(), String> {
        let (began, mut is_asked) = (Instant::now(), false);
        // By an interrupt before, everything is to be deleted all the same.
        let was_stopped = self.access.is_stopped();
        loop {
            let waits_for = match self.is_gone(&mut is_asked) {
                Ok(true) => return Ok(()),
                Ok(false) => format!("it is still there after {} s", began.elapsed().as_secs()),
                Err(why) if is_forbidden(&why) => return Err(why),
                // An API server that restarts is back soon.
                Err(why) => why,
            };
            if !was_stopped && self.access.is_stopped() {
                return Err(format!("{INTERRUPTED}: {waits_for}"));
            }
            if began.elapsed() > GONE_MAX {
                return Err(waits_for);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether nothing is left of this race. What owns everything is deleted if that was not done; what the owner
    /// owns goes after it.
    fn is_gone(&self, is_asked: &mut bool) -> Result<bool, String> {
        match self.kubectl().find(&self.owner()) {
            Ok(None) => self.is_rest_gone(),
            // Another race has made it, before or after this one's.
            Ok(Some(owner)) if !self.manifests.is_own(&owner) => Ok(true),
            Ok(Some(_)) if *is_asked => Ok(false),
            // Nobody else gives a namespace that name.
            Err(why) if *is_asked || !is_forbidden(&why) || !self.manifests.owns_namespace => Err(why),
            Ok(Some(_)) | Err(_) => {
                let args =
                    [&["delete"], &self.owner()[..], &["--ignore-not-found", "--wait=false", ANSWER_MAX]]
                        .concat();
                self.kubectl().output(&args, &[])?;
                *is_asked = true;
                Ok(false)
            }
        }
    }

    fn is_rest_gone(&self) -> Result<bool, String> {
        if self.manifests.owns_namespace {
            return Ok(true);
        }
        let labelled =
            ["pods,services", "--namespace", self.manifests.namespace, "--selector=app=hostgap-race"];
        let left = self.kubectl().get(&labelled)?;
        Ok(left["items"].as_array().is_none_or(Vec::is_empty))
    }
}

impl Drop for LeasedNamespace<'_> {
    fn drop(&mut self) {
        // Something stands here only on an error, whose own message matters more; the lease's end removes it too.
        self.remove(&mut |_| ());
    }
}

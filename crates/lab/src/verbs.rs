//! Messages by RDMA verbs: the devices by which they go, and which candidates cannot race there.
//!
//! The devices are of software RoCE, which makes packets of UDP in the kernel. Up to Linux 6.12 at least it receives
//! them in the machine's own network namespace alone, so that is where the wire is, beside those of the nodes.
//! Processes reach a device from any namespace as long as the machine shares its devices among them, which is the usual
//! mode: a pod uses the host's device, and no data path is between. A race makes nothing in a machine's own namespace,
//! so such a race runs in a virtual machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::SocketRole;
use linux::rdma::{VerbsDevice, VerbsWait};
use load::{Address, Target, VerbsTarget};
use record::{StackKind, StackWait};

use crate::shape::RdmaWire;
use crate::{Contender, LabError};

/// The kernel gives a new device its addresses some time after the link has them.
const PATIENCE: Duration = Duration::from_secs(20);

/// Marks the contenders that cannot race because they would need devices in the machine's own namespace. It is an error
/// if one of them is required.
pub(crate) fn leave_out(contenders: &mut [Contender], in_guest: bool) -> Result<(), LabError> {
    let needy = contenders.iter_mut().filter(|contender| contender.stack.kind == StackKind::Verbs);
    for contender in needy.filter(|_| !in_guest) {
        // To name what the machine lacks would not help: even with it the race could not run here.
        contender.unmet = vec![
            "devices of software RoCE receive in a machine's own network namespace alone, where a race makes nothing: race \
             it in a virtual machine (--kernel debian:6.12)"
                .to_owned(),
        ];
        if contender.required {
            let reasons = contender.unmet.join("; ");
            return Err(LabError::CannotRun { path: contender.name.clone(), reasons });
        }
    }
    Ok(())
}

/// Waits until both devices of a wire have the addresses of their links. Returns the client's, open.
pub(crate) fn await_devices(candidate: &str, wire: RdmaWire) -> Result<Arc<VerbsDevice>, LabError> {
    let deadline = Instant::now() + PATIENCE;
    let open = |part| loop {
        let opened = VerbsDevice::open(&wire.device(part));
        match opened {
            Ok(device) if device.address() == wire.address(part) => return Ok(device),
            Ok(_) | Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Ok(device) => {
                let what = format!(
                    "cannot send: RDMA device {} has address {}, and not that of its link",
                    device.name(),
                    device.address()
                );
                return Err(LabError::Unreachable { candidate: candidate.to_owned(), what });
            }
            Err(error) => return Err(error.into()),
        }
    };
    open(SocketRole::Server)?;
    open(SocketRole::Client)
}

/// What is asked over TCP, by verbs.
pub(crate) fn target(over_tcp: Target, device: &Arc<VerbsDevice>, wait: StackWait) -> Target {
    let Address::Tcp(address) = over_tcp.address else { return over_tcp };
    let wait = match wait {
        StackWait::Sleep => VerbsWait::Events,
        StackWait::Spin => VerbsWait::Polling,
    };
    Target { address: Address::Verbs(VerbsTarget { address, device: Arc::clone(device), wait }), ..over_tcp }
}

#[cfg(test)]
mod tests {
    use linux::features::Facts;
    use record::{Experiment, Machines, Workload, WorkloadKind};

    use super::*;
    use crate::cni::PluginDirs;
    use crate::field;

    #[test]
    fn a_machine_of_somebodys_has_no_such_race() {
        let workload = Workload::of(WorkloadKind::Verbs);
        let vm = Some(Machines { kernels: vec!["debian:6.12".to_owned()], ..Machines::default() });
        let experiment = Experiment { workload, vm, ..Experiment::default() };
        let mut contenders = field(&experiment, &Facts::default(), &PluginDirs::default()).unwrap();
        leave_out(&mut contenders, true).unwrap();
        assert!(contenders.iter().all(|contender| contender.unmet.is_empty()));
        leave_out(&mut contenders, false).unwrap();
        let left_out = contenders.iter().filter(|contender| contender.unmet.join("").contains("--kernel"));
        assert_eq!(left_out.count(), 3);
        contenders[2].required = true;
        let error = leave_out(&mut contenders, false).unwrap_err().to_string();
        assert!(error.starts_with("run host, verbs here: devices of software RoCE receive"), "{error}");
    }
}

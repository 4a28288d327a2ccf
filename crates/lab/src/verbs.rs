//! Messages by RDMA verbs, and the devices by which they go.
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
use record::StackWait;

use crate::LabError;
use crate::shape::RdmaWire;

/// The kernel gives a new device its addresses some time after the link has them.
const PATIENCE: Duration = Duration::from_secs(20);

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

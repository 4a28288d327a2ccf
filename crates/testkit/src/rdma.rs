//! Whether a test can make RDMA devices of software.

use linux::Netns;
use linux::netlink::RdmaDevices;

use crate::{require_root, shell, skip};

/// True if the kernel makes devices of software RoCE and lets programs use them. A virtual machine of ours has no udev,
/// so the modules are loaded here; a real machine's kernel is left as it is. If it cannot be, the skip is recorded.
///
/// # Panics
/// The kernel refuses to say which devices there are.
pub fn has_software_roce() -> bool {
    if !require_root() {
        return false;
    }
    // Never touch the devices of a real machine.
    if std::env::var_os("HOSTGAP_VM").is_none() {
        skip("RDMA devices are the whole machine's, so it needs a virtual machine of ours");
        return false;
    }
    shell("modprobe --all --quiet rdma_rxe ib_uverbs || true");
    match RdmaDevices::open_in(&Netns::current().expect("there is a namespace")) {
        Ok(_) => true,
        Err(error) => {
            skip(&format!("no RDMA: {error}"));
            false
        }
    }
}

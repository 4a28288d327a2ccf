//! libibverbs, found at run time: each driver of a card has its own part of it, which only this library
//! knows how to load.
//!
//! It is not linked, because most machines have no RDMA and need no such package. A program without shared
//! libraries cannot load it.
//!
//! Source of the structures and of their order: libibverbs/verbs.h of rdma-core. They are the library's binary
//! interface, which programs rely on because posting and polling are functions of that header.

#[cfg(not(target_feature = "crt-static"))]
use std::ffi::CStr;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The library's file, whose version of the interface has not changed since 2006.
#[cfg(not(target_feature = "crt-static"))]
const FILE: &CStr = c"libibverbs.so.1";

/// `struct ibv_context`, up to the operations of its driver.
#[repr(C)]
pub(super) struct Context {
    _device: *mut c_void,
    pub(super) operations: Operations,
}

/// `struct ibv_context_ops`: what the header calls by itself. The rest has been left for old programs.
#[repr(C)]
pub(super) struct Operations {
    _before_poll: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    _before_post: [*mut c_void; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
}

/// `struct ibv_pd`, of which nothing is read.
#[repr(C)]
pub(super) struct ProtectionDomain {
    _opaque: [u8; 0],
}

/// `struct ibv_cq`, of which nothing is read.
#[repr(C)]
pub(super) struct CompletionQueue {
    _opaque: [u8; 0],
}

/// `struct ibv_mr`, up to the key that requests name it by.
#[repr(C)]
pub(super) struct MemoryRegion {
    _before: [*mut c_void; 4],
    _handle: u32,
    pub(super) local_key: u32,
}

/// `struct ibv_qp`, up to its number.
#[repr(C)]
pub(super) struct QueuePair {
    _before: [*mut c_void; 6],
    _handle: u32,
    pub(super) number: u32,
}

/// `struct ibv_comp_channel`, up to its descriptor.
#[repr(C)]
pub(super) struct Channel {
    _context: *mut c_void,
    pub(super) descriptor: c_int,
}

/// `struct ibv_sge`: a piece of registered memory.
#[repr(C)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) local_key: u32,
}

/// `struct ibv_send_wr`. What follows is for other operations than a plain send.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) pieces: *mut Piece,
    pub(super) count: c_int,
    pub(super) opcode: c_uint,
    pub(super) flags: c_uint,
    pub(super) _other: [u64; 11],
}

/// As `struct ibv_recv_wr` lies in memory (infiniband/verbs.h).
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) id: u64,
    pub(super) next: *mut ReceiveRequest,
    pub(super) pieces: *mut Piece,
    pub(super) count: c_int,
}

/// `struct ibv_wc`: a request that is done.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Completion {
    pub(super) id: u64,
    pub(super) status: c_uint,
    _opcode: c_uint,
    _vendor: u32,
    pub(super) bytes: u32,
    _other: [u32; 6],
}

/// As `struct ibv_qp_cap` lies in memory.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) send_pieces: u32,
    pub(super) receive_pieces: u32,
    pub(super) inline_bytes: u32,
}

/// As `struct ibv_qp_init_attr` lies in memory.
#[repr(C)]
pub(super) struct QueuePairSetup {
    pub(super) context: *mut c_void,
    pub(super) send_queue: *mut CompletionQueue,
    pub(super) receive_queue: *mut CompletionQueue,
    pub(super) shared_receives: *mut c_void,
    pub(super) capacity: Capacity,
    pub(super) kind: c_uint,
    pub(super) signals_all: c_int,
}

/// `struct ibv_ah_attr` with its `struct ibv_global_route`: where a queue pair's packets go.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Way {
    /// Aligned as the union is, of which it is the first member.
    pub(super) gid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) own_gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) local_id: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// As `struct ibv_qp_attr` lies in memory.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct QueuePairState {
    pub(super) state: c_uint,
    pub(super) current: c_uint,
    pub(super) mtu: c_uint,
    pub(super) migration: c_uint,
    pub(super) key: u32,
    pub(super) receive_number: u32,
    pub(super) send_number: u32,
    pub(super) peer: u32,
    pub(super) access: c_uint,
    pub(super) capacity: Capacity,
    pub(super) way: Way,
    pub(super) other_way: Way,
    pub(super) partition: u16,
    pub(super) other_partition: u16,
    pub(super) drained: [u8; 2],
    pub(super) reads: u8,
    pub(super) peer_reads: u8,
    pub(super) not_ready_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) other_port: u8,
    pub(super) other_timeout: u8,
    pub(super) rate_limit: u32,
}

/// As `struct ibv_gid_entry` lies in memory.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct GidEntry {
    pub(super) gid: [u64; 2],
    pub(super) index: u32,
    pub(super) port: u32,
    pub(super) kind: u32,
    pub(super) link: u32,
}

/// `struct ibv_port_attr`, with room for what later versions add.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PortState {
    pub(super) state: c_uint,
    pub(super) mtu_max: c_uint,
    pub(super) mtu: c_uint,
    pub(super) gids: c_int,
    _other: [u32; 16],
}

macro_rules! library {
    ($($name:ident as $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used here.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            #[cfg(not(target_feature = "crt-static"))]
            fn of(handle: *mut c_void) -> Result<Library, String> {
                Ok(Library {
                    // SAFETY: a function of that name has had this type in all versions of the library's file, and is
                    // never null; the handle is never closed.
                    $($name: unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol(handle, $symbol)?)
                    },)*
                })
            }
        }
    };
}

library! {
    get_device_list as c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut c_void;
    free_device_list as c"ibv_free_device_list": fn(*mut *mut c_void);
    get_device_name as c"ibv_get_device_name": fn(*mut c_void) -> *const c_char;
    open_device as c"ibv_open_device": fn(*mut c_void) -> *mut Context;
    close_device as c"ibv_close_device": fn(*mut Context) -> c_int;
    query_port as c"ibv_query_port": fn(*mut Context, u8, *mut PortState) -> c_int;
    query_gid_ex as c"_ibv_query_gid_ex": fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    alloc_pd as c"ibv_alloc_pd": fn(*mut Context) -> *mut ProtectionDomain;
    dealloc_pd as c"ibv_dealloc_pd": fn(*mut ProtectionDomain) -> c_int;
    reg_mr as c"ibv_reg_mr": fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    dereg_mr as c"ibv_dereg_mr": fn(*mut MemoryRegion) -> c_int;
    create_channel as c"ibv_create_comp_channel": fn(*mut Context) -> *mut Channel;
    destroy_channel as c"ibv_destroy_comp_channel": fn(*mut Channel) -> c_int;
    create_cq as c"ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut CompletionQueue;
    destroy_cq as c"ibv_destroy_cq": fn(*mut CompletionQueue) -> c_int;
    get_cq_event as c"ibv_get_cq_event": fn(*mut Channel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ack_cq_events as c"ibv_ack_cq_events": fn(*mut CompletionQueue, c_uint);
    create_qp as c"ibv_create_qp": fn(*mut ProtectionDomain, *mut QueuePairSetup) -> *mut QueuePair;
    destroy_qp as c"ibv_destroy_qp": fn(*mut QueuePair) -> c_int;
    modify_qp as c"ibv_modify_qp": fn(*mut QueuePair, *mut QueuePairState, c_int) -> c_int;
}

/// The library, or why there is none, as the rest of a sentence.
pub(super) fn library() -> Result<&'static Library, String> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

#[cfg(target_feature = "crt-static")]
fn load() -> Result<Library, String> {
    Err("this program was built without shared libraries, and cannot load libibverbs, whose parts are those of the cards' \
         drivers; one built from source can"
        .to_owned())
}

#[cfg(not(target_feature = "crt-static"))]
fn load() -> Result<Library, String> {
    // SAFETY: the name ends with a NUL. What the library does when it is loaded is its own, as with any that is linked.
    let handle = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!(
            "{}; Debian has it in libibverbs1, and the drivers' parts in ibverbs-providers",
            last_error()
        ));
    }
    Library::of(handle)
}

#[cfg(not(target_feature = "crt-static"))]
fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is of a loaded library, and the name ends with a NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() { Err(format!("libibverbs is too old: {}", last_error())) } else { Ok(found) }
}

#[cfg(not(target_feature = "crt-static"))]
fn last_error() -> String {
    // SAFETY: it returns null or a text that this thread may read until its next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker gives no reason".to_owned();
    }
    // SAFETY: as above; it ends with a NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// As a C compiler says of the header of rdma-core 44.
    #[test]
    fn structures_are_as_the_header_has_them() {
        assert_eq!(offset_of!(Context, operations), 8);
        assert_eq!(offset_of!(Operations, poll_cq), 88);
        assert_eq!(offset_of!(Operations, req_notify_cq), 96);
        assert_eq!(offset_of!(Operations, post_send), 200);
        assert_eq!(offset_of!(Operations, post_recv), 208);
        assert_eq!(offset_of!(MemoryRegion, local_key), 36);
        assert_eq!(offset_of!(QueuePair, number), 52);
        assert_eq!(offset_of!(Channel, descriptor), 8);
        let sizes = [
            (size_of::<Piece>(), 16),
            (size_of::<SendRequest>(), 128),
            (size_of::<ReceiveRequest>(), 32),
            (size_of::<Completion>(), 48),
            (size_of::<Capacity>(), 20),
            (size_of::<QueuePairSetup>(), 64),
            (size_of::<Way>(), 32),
            (size_of::<QueuePairState>(), 144),
            (size_of::<GidEntry>(), 32),
        ];
        assert!(sizes.iter().all(|(ours, theirs)| ours == theirs), "{sizes:?}");
        assert_eq!(
            (offset_of!(Way, own_gid_index), offset_of!(Way, local_id), offset_of!(Way, port)),
            (20, 24, 30)
        );
        assert_eq!((offset_of!(SendRequest, flags), offset_of!(Completion, bytes)), (32, 20));
        let state = [
            (offset_of!(QueuePairState, mtu), 8),
            (offset_of!(QueuePairState, peer), 28),
            (offset_of!(QueuePairState, way), 56),
            (offset_of!(QueuePairState, partition), 120),
            (offset_of!(QueuePairState, reads), 126),
            (offset_of!(QueuePairState, port), 129),
            (offset_of!(QueuePairState, not_ready_retries), 132),
            (offset_of!(QueuePairState, rate_limit), 136),
        ];
        assert!(state.iter().all(|(ours, theirs)| ours == theirs), "{state:?}");
        assert_eq!((offset_of!(GidEntry, kind), offset_of!(PortState, gids)), (24, 12));
    }
}

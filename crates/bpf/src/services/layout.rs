//! The structures of `services.h` that are written here as bytes lie in memory as the programs were compiled with.

use super::skeleton::types::{address, destination, service, slot};
use crate::layout::lies_as;

lies_as!(address: words 16);
lies_as!(destination: address 16, port 2, protocol 2);
lies_as!(service: generation 4, backends 4, affinity_s 4);
lies_as!(slot: service 20, generation 4, slot 4);

//! Data paths from outside: their plans as text, their documentation, and real packets through real namespaces.

mod accepted;
mod asking;
mod attack;
mod crowd;
mod document;
mod encrypted;
mod golden;
mod networks;
mod pair;
mod paths;
mod probe;
mod published;
mod reject;
mod replace;
mod specified;
mod specs;
mod splice;
mod traces;
mod traffic;
mod undo;

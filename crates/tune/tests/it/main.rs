//! The table of knobs from outside: what it promises, its documentation, and every knob on the real kernel.

mod document;
mod kernel;
mod reading;
mod rows;

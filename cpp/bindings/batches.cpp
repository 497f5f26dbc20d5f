// SPDX-License-Identifier: MIT
// Layouts of batches, by which a step finds its recording.
#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace dnnsuite::bindings {

namespace {

/// Layout of a batch: its tensors, what describes it beside them and numbers, and its numbers.
class Flat {
  public:
    Flat(py::handle tensor, py::handle plain, py::handle numbers, py::handle opened)
        : tensor_(tensor.ptr()), plain_(plain.ptr()), number_types_(numbers.ptr()),
          opened_(py::reinterpret_borrow<py::object>(opened)) {}

    /// Adds a part; false if there is a value in it that cannot be compared.
    bool add(PyObject* value) {
        PyObject* const kind = reinterpret_cast<PyObject*>(Py_TYPE(value));
        if (kind == tensor_) return add_tensor(value);
        if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
            const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
            say(kind);
            signature_.append(py::int_(count));
            for (Py_ssize_t place = 0; place < count && place < PySequence_Fast_GET_SIZE(value); ++place)
                if (!add(PySequence_Fast_GET_ITEM(value, place))) return false;
            return true;
        }
        if (PyDict_CheckExact(value)) {
            const auto held = py::reinterpret_borrow<py::dict>(value);
            signature_.append(py::tuple(py::list(held)));
            return add(py::tuple(py::list(held.attr("values")())).ptr());
        }
        if (contains(number_types_, kind)) {
            say(kind);
            numbers_.append(py::handle(value));
            return true;
        }
        const int is_plain = PyObject_IsInstance(value, plain_);
        if (is_plain < 0) throw py::error_already_set();
        if (is_plain == 0) {
            const py::object found = opened_(py::handle(value));
            if (!found.is_none()) {
                const auto parts = found.cast<py::tuple>();
                say(kind);
                signature_.append(parts[0]);
                return add(py::tuple(py::list(parts[1])).ptr());
            }
        }
        say(kind);
        signature_.append(py::handle(value));
        return is_plain == 1;
    }

    py::tuple result(bool known) const {
        const py::object signature = known ? py::object(py::tuple(signature_)) : py::none();
        return py::make_tuple(tensors_, signature, py::tuple(numbers_));
    }

  private:
    static bool contains(PyObject* types, PyObject* kind) {
        for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(types); ++place)
            if (PyTuple_GET_ITEM(types, place) == kind) return true;
        return false;
    }

    void say(PyObject* kind) { signature_.append(py::handle(kind)); }

    bool add_tensor(PyObject* value) {
        static PyObject* const names[] = {PyUnicode_InternFromString("shape"), PyUnicode_InternFromString("dtype"),
                                          PyUnicode_InternFromString("requires_grad")};
        static PyObject* const stride = PyUnicode_InternFromString("stride");
        for (PyObject* const name : names) take(PyObject_GetAttr(value, name));
        PyObject* const strides = PyObject_CallMethodNoArgs(value, stride);
        if (strides == nullptr) {  // of a sparse one
            PyErr_Clear();
            return false;
        }
        take(strides);
        for (Py_ssize_t place = 0; place < PyList_GET_SIZE(tensors_.ptr()); ++place)  // twice the same is another step
            if (PyList_GET_ITEM(tensors_.ptr(), place) == value) signature_.append(py::int_(place));
        tensors_.append(py::handle(value));
        return true;
    }

    void take(PyObject* found) {
        if (found == nullptr) throw py::error_already_set();
        signature_.append(py::reinterpret_steal<py::object>(found));
    }

    PyObject *tensor_, *plain_, *number_types_;
    py::object opened_;
    py::list tensors_, signature_, numbers_;
};

py::tuple flatten(py::handle batch, py::handle tensor, const py::tuple& plain, const py::tuple& numbers,
                  py::handle opened) {
    Flat flat(tensor, plain, numbers, opened);
    const bool known = flat.add(batch.ptr());
    return flat.result(known);
}

}  // namespace

void init_batches(py::module_& m) {
    m.def("flatten", &flatten, py::arg("batch"), py::arg("tensor"), py::arg("plain"), py::arg("numbers"),
          py::arg("opened"),
          "Take a batch apart: its tensors, its signature (their layouts and the values of everything else), and its "
          "numbers.\n\nThe signature is None if a value cannot be compared. `tensor` is the type of tensors, `plain` "
          "are those of values, `numbers`\nthose of numbers; `opened(value)` returns the names and the parts of any "
          "other value, or None.");
}

}  // namespace dnnsuite::bindings

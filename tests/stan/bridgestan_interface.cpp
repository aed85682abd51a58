// BridgeStan's C interface over one Stan model, for the tests.
//
// Linked with the C++ that stanc writes for a program, it makes a shared library that the Python
// package `bridgestan` loads. Functions the package binds and the tests do not need return an error.
#include <stan/model/model_header.hpp>

#include <stan/io/empty_var_context.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/model/log_prob_grad.hpp>
#include <stan/services/util/create_rng.hpp>
#include <stan/version.hpp>

#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#ifndef INTERFACE_VERSION
#error "Define INTERFACE_VERSION as the version of the Python package: major,minor,patch"
#endif

stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages);

namespace {

constexpr int version[] = {INTERFACE_VERSION};

struct Model {
  std::unique_ptr<stan::model::model_base> stan;
  std::string name, info, unconstrained_names;
  std::string names[2][2];  // [with transformed parameters][with generated quantities]
  int sizes[2][2];
};

using Rng = stan::rng_t;
using Vector = Eigen::VectorXd;

// Stan keeps its autodiff stack per thread; every calling thread needs one.
void prepare_thread() { thread_local stan::math::ChainableStack stack; }

int guarded(char** error, const std::function<void(std::ostream*)>& body) {
  std::ostringstream messages;
  try {
    prepare_thread();
    body(&messages);
    return 0;
  } catch (const std::exception& exception) {
    if (error) *error = strdup((std::string(exception.what()) + messages.str()).c_str());
  } catch (...) {
    if (error) *error = strdup("unknown exception");
  }
  return -1;
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : ",") + word;
  return line;
}

std::unique_ptr<stan::io::var_context> parsed(const char* json) {
  if (json == nullptr || *json == '\0') return std::make_unique<stan::io::empty_var_context>();
  std::istringstream stream(json);
  return std::make_unique<stan::json::json_data>(stream);
}

template <bool propto, bool jacobian>
double gradient(const Model& model, const double* x, double* out, std::ostream* messages) {
  const auto d = model.stan->num_params_r();
  Vector point = Eigen::Map<const Vector>(x, d), slope(d);
  const double value
      = stan::model::log_prob_grad<propto, jacobian>(*model.stan, point, slope, messages);
  Vector::Map(out, d) = slope;
  return value;
}

}  // namespace

extern "C" {

int bs_major_version = version[0], bs_minor_version = version[1], bs_patch_version = version[2];

void bs_free_error_msg(char* error) { free(error); }

int bs_set_print_callback(void (*)(const char*, size_t), char**) { return 0; }

void* bs_model_construct(const char* data, unsigned int seed, char** error) {
  auto model = std::make_unique<Model>();
  const int status = guarded(error, [&](std::ostream* messages) {
    auto context = parsed(data);
    model->stan.reset(&new_model(*context, seed, messages));
    model->name = model->stan->model_name();
    model->info = "Stan version: " + std::to_string(STAN_MAJOR) + "." + std::to_string(STAN_MINOR)
                  + "\nStan C++ Defines:\n\tSTAN_THREADS=true\n";
    std::vector<std::string> words;
    model->stan->unconstrained_param_names(words, false, false);
    model->unconstrained_names = joined(words);
    for (int transformed = 0; transformed < 2; ++transformed)
      for (int generated = 0; generated < 2; ++generated) {
        words.clear();
        model->stan->constrained_param_names(words, transformed, generated);
        model->sizes[transformed][generated] = words.size();
        model->names[transformed][generated] = joined(words);
      }
  });
  return status == 0 ? model.release() : nullptr;
}

void bs_model_destruct(Model* model) { delete model; }

const char* bs_name(const Model* model) { return model->name.c_str(); }

const char* bs_model_info(const Model* model) { return model->info.c_str(); }

const char* bs_param_names(const Model* model, bool transformed, bool generated) {
  return model->names[transformed][generated].c_str();
}

const char* bs_param_unc_names(const Model* model) { return model->unconstrained_names.c_str(); }

int bs_param_num(const Model* model, bool transformed, bool generated) {
  return model->sizes[transformed][generated];
}

int bs_param_unc_num(const Model* model) { return model->stan->num_params_r(); }

int bs_param_constrain(const Model* model, bool transformed, bool generated, const double* x,
                       double* out, Rng* rng, char** error) {
  return guarded(error, [&](std::ostream* messages) {
    Rng unused;
    Vector point = Eigen::Map<const Vector>(x, model->stan->num_params_r()), values;
    model->stan->write_array(rng ? *rng : unused, point, values, transformed, generated, messages);
    Vector::Map(out, values.size()) = values;
  });
}

int bs_param_unconstrain(const Model* model, const double* theta, double* out, char** error) {
  return guarded(error, [&](std::ostream* messages) {
    Vector values = Eigen::Map<const Vector>(theta, model->sizes[0][0]), point;
    model->stan->unconstrain_array(values, point, messages);
    Vector::Map(out, point.size()) = point;
  });
}

int bs_param_unconstrain_json(const Model* model, const char* json, double* out, char** error) {
  return guarded(error, [&](std::ostream* messages) {
    auto context = parsed(json);
    Vector point;
    model->stan->transform_inits(*context, point, messages);
    Vector::Map(out, point.size()) = point;
  });
}

int bs_log_density_gradient(const Model* model, bool propto, bool jacobian, const double* x,
                            double* value, double* out, char** error) {
  return guarded(error, [&](std::ostream* messages) {
    const auto evaluate = propto ? (jacobian ? gradient<true, true> : gradient<true, false>)
                                 : (jacobian ? gradient<false, true> : gradient<false, false>);
    *value = evaluate(*model, x, out, messages);
  });
}

int bs_log_density(const Model* model, bool propto, bool jacobian, const double* x, double* value,
                   char** error) {
  std::vector<double> slope(model->stan->num_params_r());
  return bs_log_density_gradient(model, propto, jacobian, x, value, slope.data(), error);
}

void* bs_rng_construct(unsigned int seed, char**) {
  return new Rng(stan::services::util::create_rng(seed, 0));
}

void bs_rng_destruct(Rng* rng) { delete rng; }

int bs_not_implemented(char** error) {
  return guarded(error, [](std::ostream*) { throw std::logic_error("not in the test interface"); });
}

int bs_param_initialize(const Model*, const char*, Rng*, double, int, bool, double*, char** error) {
  return bs_not_implemented(error);
}

int bs_log_density_hessian(const Model*, bool, bool, const double*, double*, double*, double*,
                           char** error) {
  return bs_not_implemented(error);
}

int bs_log_density_hessian_vector_product(const Model*, bool, bool, const double*, const double*,
                                          double*, double*, char** error) {
  return bs_not_implemented(error);
}

}  // extern "C"
